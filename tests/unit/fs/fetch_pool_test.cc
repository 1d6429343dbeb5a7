#include "fs/fetch/fetch_pool.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <future>
#include <thread>

#include "fs/cpu_placement.h"
#include "tests/unit/fs/fake_request.h"

namespace varve::fs {
namespace {

/// Notes the batches it gets; the first one waits until it is let go.
struct Notes {
  std::promise<void> go;
  std::shared_future<void> gone = go.get_future().share();
  std::mutex mutex;
  std::vector<size_t> batch_sizes;
  std::atomic<int> ahead_running_count{0};
  std::vector<uint64_t> ahead_firsts;
};

class NotingExecutor : public ReadExecutor {
 public:
  explicit NotingExecutor(Notes& notes) : notes_(notes) {}
  void execute(const std::vector<std::shared_ptr<ReadOperation>>& batch) override {
    notes_.gone.wait();
    std::lock_guard lock(notes_.mutex);
    notes_.batch_sizes.push_back(batch.size());
  }
  void read_ahead(const AheadWork& work) override {
    ++notes_.ahead_running_count;
    notes_.gone.wait();
    std::lock_guard lock(notes_.mutex);
    notes_.ahead_firsts.push_back(work.chunks.first);
  }

 private:
  Notes& notes_;
};

std::shared_ptr<ReadOperation> read_at(FakeRequest& request, uint64_t offset, uint32_t size) {
  return std::make_shared<ReadOperation>(
      request, nullptr, nullptr, std::vector<ReadSegment>{{offset, size, 0}}, size, kNoDeadline);
}

TEST(FetchPoolTest, ReadsThatContinueOneAnotherBecomeOneBatchWhileThreadsAreBusy) {
  FakeRequest request;
  Notes notes;
  FetchPool pool(1, [&] { return std::make_unique<NotingExecutor>(notes); });
  std::promise<void> running;
  pool.submit_task([&] {
    running.set_value();
    notes.gone.wait();
  });
  running.get_future().wait();
  for (uint64_t i = 0; i < 6; ++i) pool.submit(read_at(request, i << 20, 1 << 20));
  pool.submit(read_at(request, 100 << 20, 4096));
  std::promise<void> done;
  pool.submit_task([&] { done.set_value(); });
  notes.go.set_value();
  done.get_future().wait();
  // At most 4 MiB together.
  EXPECT_EQ(notes.batch_sizes, (std::vector<size_t>{4, 2, 1}));
}

TEST(FetchPoolTest, AThreadIsNotBoundToTheCpuOfTheOneThatStartedIt) {
  cpu_set_t of_process;
  ASSERT_EQ(sched_getaffinity(getpid(), sizeof(of_process), &of_process), 0);
  Notes notes;
  FetchPool pool(1, [&] { return std::make_unique<NotingExecutor>(notes); });
  cpu_set_t found;
  std::promise<void> done;
  std::thread([&] {
    const auto here = static_cast<size_t>(sched_getcpu());
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(here, &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
    pool.submit_task([&] {
      EXPECT_EQ(sched_getaffinity(0, sizeof(found), &found), 0);
      done.set_value();
    });
  }).join();
  done.get_future().wait();
  EXPECT_TRUE(CPU_EQUAL(&found, &of_process));
}

TEST(FetchPoolTest, AThreadThatHangsDoesNotHoldUpTheOthers) {
  FakeRequest request;
  Notes notes;
  FetchPool pool(2, [&] { return std::make_unique<NotingExecutor>(notes); });
  pool.submit(read_at(request, 0, 4096));
  std::promise<void> done;
  pool.submit_task([&] { done.set_value(); });
  done.get_future().wait();
  EXPECT_FALSE(pool.stop(deadline_after_ms(1)));
  notes.go.set_value();
  EXPECT_TRUE(pool.stop(kNoDeadline));
}

// Root is exempt from the limit.
void forbid_more_threads() {
  const rlimit none{1, 1};
  if (geteuid() == 0 && setresuid(65534, 65534, 65534) != 0) _exit(2);
  if (setrlimit(RLIMIT_NPROC, &none) != 0) _exit(2);
}

void do_all_work_with_the_threads_there_are() {
  FakeRequest request;
  Notes notes;
  notes.go.set_value();
  FetchPool pool(4, [&] { return std::make_unique<NotingExecutor>(notes); });
  std::promise<void> running;
  std::promise<void> gone;
  if (!pool.submit_task([&] {
        running.set_value();
        gone.get_future().wait();
      })) {
    _exit(3);
  }
  running.get_future().wait();
  forbid_more_threads();
  pool.submit(read_at(request, 0, 4096));
  pool.submit_ahead({nullptr, {7, 1}, kNoDeadline, -1});
  std::promise<void> done;
  if (!pool.submit_task([&] { done.set_value(); })) _exit(3);
  gone.set_value();
  done.get_future().wait();
  _exit(notes.batch_sizes == std::vector<size_t>{1} ? 0 : 1);
}

void refuse_work_without_a_thread() {
  Notes notes;
  FetchPool pool(4, [&] { return std::make_unique<NotingExecutor>(notes); });
  forbid_more_threads();
  const Status submitted = pool.submit_task([] { _exit(3); });
  _exit(!submitted && submitted.error().code() == ErrorCode::kUnavailable ? 0 : 1);
}

TEST(FetchPoolTest, WhereNoThreadCanBeStartedThoseThatRunDoAllTheWork) {
  EXPECT_EXIT(do_all_work_with_the_threads_there_are(), testing::ExitedWithCode(0), "");
}

TEST(FetchPoolTest, WorkIsRefusedWhereNotEvenOneThreadCanBeStarted) {
  EXPECT_EXIT(refuse_work_without_a_thread(), testing::ExitedWithCode(0), "");
}

TEST(FetchPoolTest, StopDropsWhatIsQueued) {
  FakeRequest request;
  Notes notes;
  FetchPool pool(1, [&] { return std::make_unique<NotingExecutor>(notes); });
  std::promise<void> running;
  pool.submit_task([&] {
    running.set_value();
    notes.gone.wait();
  });
  running.get_future().wait();
  pool.submit(read_at(request, 0, 4096));
  EXPECT_FALSE(pool.stop(deadline_after_ms(1)));
  notes.go.set_value();
  EXPECT_TRUE(pool.stop(kNoDeadline));
  EXPECT_TRUE(notes.batch_sizes.empty());
  pool.submit_task([] { FAIL() << "a stopped pool ran a task"; });
}

TEST(FetchPoolTest, ReadAheadThatHangsLeavesHalfOfTheThreadsToOthers) {
  Notes notes;
  FetchPool pool(4, [&] { return std::make_unique<NotingExecutor>(notes); });
  for (uint64_t i = 0; i < 8; ++i) pool.submit_ahead({nullptr, {i, 1}, kNoDeadline, 0});
  while (notes.ahead_running_count < 2) std::this_thread::yield();
  for (int i = 0; i < 10; ++i) {
    std::promise<void> done;
    pool.submit_task([&] { done.set_value(); });
    done.get_future().wait();
  }
  EXPECT_EQ(notes.ahead_running_count, 2);
  EXPECT_FALSE(pool.stop(deadline_after_ms(1)));
  notes.go.set_value();
  EXPECT_TRUE(pool.stop(kNoDeadline));
  // What was queued was dropped.
  EXPECT_EQ(notes.ahead_firsts.size(), 2u);
}

TEST(FetchPoolTest, ReadAheadComesAfterEverythingElseAndIsDroppedWhereTooMuchWaits) {
  Notes notes;
  FetchPool pool(2, [&] { return std::make_unique<NotingExecutor>(notes); });
  std::promise<void> go;
  std::shared_future<void> gone = go.get_future().share();
  std::promise<void> running[2];
  for (auto& one : running) {
    pool.submit_task([&one, gone] {
      one.set_value();
      gone.wait();
    });
  }
  for (auto& one : running) one.get_future().wait();
  EXPECT_FALSE(pool.wants_threads());
  notes.go.set_value();
  for (uint64_t i = 0; i < 100; ++i) pool.submit_ahead({nullptr, {i, 1}, kNoDeadline, 0});
  FakeRequest request;
  pool.submit(read_at(request, 0, 4096));
  EXPECT_TRUE(pool.wants_threads());
  std::promise<size_t> ahead_before;
  pool.submit_task([&] {
    std::lock_guard lock(notes.mutex);
    ahead_before.set_value(notes.ahead_firsts.size());
  });
  go.set_value();
  // One of the two threads may have begun with it while the other took the last task.
  EXPECT_LE(ahead_before.get_future().get(), 1u);
  for (;;) {
    std::lock_guard lock(notes.mutex);
    if (notes.ahead_firsts.size() == 16) break;
  }
  EXPECT_TRUE(pool.stop(kNoDeadline));
  EXPECT_EQ(notes.ahead_firsts.size(), 16u);
}

TEST(FetchPoolTest, APoolOfOneThreadDoesNotReadAhead) {
  Notes notes;
  notes.go.set_value();
  FetchPool pool(1, [&] { return std::make_unique<NotingExecutor>(notes); });
  pool.submit_ahead({nullptr, {0, 1}, kNoDeadline, 0});
  std::promise<void> done;
  pool.submit_task([&] { done.set_value(); });
  done.get_future().wait();
  EXPECT_TRUE(pool.stop(kNoDeadline));
  EXPECT_TRUE(notes.ahead_firsts.empty());
}

/// Tells on which CPU it reads ahead.
class PlaceTellingExecutor : public ReadExecutor {
 public:
  PlaceTellingExecutor(int first_cpu, std::promise<int>& cpu) : cpu_(cpu) {
    move_to_cpu(first_cpu);
  }
  void execute(const std::vector<std::shared_ptr<ReadOperation>>&) override {}
  void read_ahead(const AheadWork&) override { cpu_.set_value(sched_getcpu()); }

 private:
  std::promise<int>& cpu_;
};

TEST(FetchPoolTest, ReadAheadLeavesTheCpuOfTheReader) {
  if (std::thread::hardware_concurrency() < 2) return;  // Nowhere to go.
  constexpr int kTryCount = 21;
  int left_count = 0;
  for (int i = 0; i < kTryCount; ++i) {
    const int reader_cpu = sched_getcpu();
    std::promise<int> cpu;
    FetchPool pool(2, [&] { return std::make_unique<PlaceTellingExecutor>(reader_cpu, cpu); });
    pool.submit_ahead({nullptr, {0, 1}, kNoDeadline, reader_cpu});
    if (cpu.get_future().get() != reader_cpu) ++left_count;
  }
  // The scheduler may move a thread at any time.
  EXPECT_GT(left_count, kTryCount / 2);
}

}  // namespace
}  // namespace varve::fs
