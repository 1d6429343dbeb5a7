#include "fs/fetch/pending_reads.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>

#include "tests/unit/fs/fake_request.h"

namespace varve::fs {
namespace {

constexpr int64_t kFarMs = 3'600'000;

std::shared_ptr<ReadOperation> read_of(FakeRequest& request, int64_t deadline_ms = kFarMs) {
  return std::make_shared<ReadOperation>(request, nullptr, nullptr, std::vector<ReadSegment>(),
                                         4096, deadline_after_ms(deadline_ms));
}

// The reaper answers on its own thread; the state is what may be looked at from here.
void wait_until_answered(const ReadOperation& read) {
  while (!read.is_answered()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

TEST(PendingReadsTest, AReadThatIsFilledIsAnsweredOnce) {
  FakeRequest request(FakeRequest::with_unique(2));
  {
    PendingReads pending([](uint32_t) { return true; });
    const auto read = read_of(request);
    pending.add(read);
    EXPECT_EQ(pending.count(), 1u);
    ASSERT_TRUE(read->claim());
    pending.finish(*read);
    pending.interrupt(2);
    pending.abort_all(EIO);
    EXPECT_EQ(pending.count(), 0u);
  }
  EXPECT_EQ(request.answer_count(), 1u);
  EXPECT_EQ(request.error(), 0);
}

TEST(PendingReadsTest, ADeadlineThatPassedIsEio) {
  FakeRequest request(FakeRequest::with_unique(2));
  {
    PendingReads pending([](uint32_t) { return false; });
    const auto read = read_of(request, 1);
    pending.add(read);
    wait_until_answered(*read);
    EXPECT_FALSE(read->claim());
  }
  EXPECT_EQ(request.error(), EIO);
}

TEST(PendingReadsTest, OfAReadThatWaitsLongIsToldOnceBeforeItsDeadline) {
  FakeRequest request(FakeRequest::with_unique(2));
  std::atomic<int> told_count{0};
  {
    PendingReads pending([](uint32_t) { return false; },
                         [&](const std::shared_ptr<ReadOperation>& read) {
                           EXPECT_EQ(read->unique, 2u);
                           EXPECT_FALSE(read->is_answered());
                           ++told_count;
                         });
    const auto read = read_of(request, 800);
    pending.add(read);
    wait_until_answered(*read);
  }
  EXPECT_EQ(told_count, 1);
}

TEST(PendingReadsTest, AReadIsNotAnsweredWhileItIsFilled) {
  FakeRequest request(FakeRequest::with_unique(2));
  {
    PendingReads pending([](uint32_t) { return false; });
    const auto read = read_of(request, 1);
    ASSERT_TRUE(read->claim());
    pending.add(read);
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    EXPECT_FALSE(read->is_answered());
    read->unclaim();
    wait_until_answered(*read);
  }
  EXPECT_EQ(request.error(), EIO);
}

TEST(PendingReadsTest, AnInterruptOfAThreadThatIsKilledIsEintr) {
  FakeRequest request(FakeRequest::with_unique(2, 77));
  {
    PendingReads pending([](uint32_t pid) { return pid == 77; });
    const auto read = read_of(request);
    pending.add(read);
    pending.interrupt(2);
    wait_until_answered(*read);
  }
  EXPECT_EQ(request.error(), EINTR);
}

TEST(PendingReadsTest, AnInterruptThatComesBeforeItsReadCounts) {
  FakeRequest request(FakeRequest::with_unique(2));
  {
    PendingReads pending([](uint32_t) { return true; });
    pending.interrupt(2);
    const auto read = read_of(request);
    pending.add(read);
    wait_until_answered(*read);
  }
  EXPECT_EQ(request.error(), EINTR);
}

TEST(PendingReadsTest, ASignalThatDoesNotKillLeavesTheReadUntilOneDoes) {
  FakeRequest request(FakeRequest::with_unique(2));
  std::atomic<bool> is_killed{false};
  std::atomic<int> asked_count{0};
  {
    PendingReads pending([&](uint32_t) {
      ++asked_count;
      return is_killed.load();
    });
    const auto read = read_of(request);
    pending.add(read);
    pending.interrupt(2);
    while (asked_count < 3) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_FALSE(read->is_answered());
    is_killed = true;
    wait_until_answered(*read);
  }
  EXPECT_EQ(request.error(), EINTR);
}

TEST(PendingReadsTest, AbortEndsAllReadsAndThoseToCome) {
  FakeRequest first(FakeRequest::with_unique(2));
  FakeRequest second(FakeRequest::with_unique(4));
  PendingReads pending([](uint32_t) { return false; });
  pending.add(read_of(first));
  pending.abort_all(EIO);
  pending.add(read_of(second));
  EXPECT_EQ(first.error(), EIO);
  EXPECT_EQ(second.error(), EIO);
  EXPECT_EQ(pending.count(), 0u);
  EXPECT_EQ(pending.oldest_age_ms(), 0u);
}

TEST(PendingReadsTest, TellsAKilledThreadFromALivingOne) {
  EXPECT_FALSE(is_being_killed(static_cast<uint32_t>(getpid())));
  EXPECT_TRUE(is_being_killed(0));
  const pid_t child = fork();
  if (child == 0) _exit(0);
  waitpid(child, nullptr, 0);
  EXPECT_TRUE(is_being_killed(static_cast<uint32_t>(child)));
}

}  // namespace
}  // namespace varve::fs
