#include "fs/cpu_placement.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

#include "fs/transport/reader_follower.h"

namespace varve::fs {
namespace {

std::vector<int> allowed_cpus() {
  cpu_set_t set;
  EXPECT_EQ(sched_getaffinity(0, sizeof(set), &set), 0);
  std::vector<int> cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(static_cast<size_t>(cpu), &set)) cpus.push_back(cpu);
  }
  return cpus;
}

void allow_only(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<size_t>(cpu), &set);
  ASSERT_EQ(sched_setaffinity(0, sizeof(set), &set), 0);
}

// The scheduler may move a thread again at once, so what it does is tried until it is seen.
template <class Seen>
bool is_seen(const Seen& seen) {
  for (int i = 0; i < 10'000; ++i) {
    if (seen()) return true;
  }
  return false;
}

/// A thread that stays on one CPU until it is told to end.
class ThreadOn {
 public:
  explicit ThreadOn(int cpu) : thread_([this, cpu] { run(cpu); }) { id_.wait(0); }
  ~ThreadOn() {
    is_over_ = true;
    is_over_.notify_all();
    thread_.join();
  }
  uint32_t id() const { return id_; }

 private:
  void run(int cpu) {
    allow_only(cpu);
    id_ = static_cast<uint32_t>(gettid());
    id_.notify_all();
    is_over_.wait(false);
  }

  std::atomic<uint32_t> id_{0};
  std::atomic<bool> is_over_{false};
  std::thread thread_;
};

TEST(CpuPlacementTest, MovesToEachCpuThatIsAllowedAndForbidsNone) {
  const auto cpus = allowed_cpus();
  for (const int cpu : cpus) {
    EXPECT_TRUE(is_seen([&] { return move_to_cpu(cpu) && sched_getcpu() == cpu; }));
    EXPECT_EQ(allowed_cpus(), cpus);
  }
}

TEST(CpuPlacementTest, LeavesACpuAndMayComeBack) {
  const auto cpus = allowed_cpus();
  for (const int cpu : cpus) {
    const bool has_left =
        is_seen([&] { return move_to_cpu(cpu) && leave_cpu(cpu) && sched_getcpu() != cpu; });
    EXPECT_EQ(has_left, cpus.size() > 1);
    EXPECT_EQ(allowed_cpus(), cpus);
  }
}

TEST(CpuPlacementTest, GoesNowhereElseThanIsAllowed) {
  const auto cpus = allowed_cpus();
  std::thread([&] {
    allow_only(cpus.back());
    EXPECT_FALSE(leave_cpu(cpus.back()));
    EXPECT_EQ(move_to_cpu(cpus.front()), cpus.size() == 1);
    EXPECT_FALSE(move_to_cpu(-1));
    EXPECT_FALSE(move_to_cpu(CPU_SETSIZE));
    EXPECT_EQ(allowed_cpus(), std::vector<int>{cpus.back()});
  }).join();
}

TEST(CpuPlacementTest, SeesWhereAThreadIsUntilItEnds) {
  std::optional<ThreadWatch> watch;
  for (const int cpu : allowed_cpus()) {
    const ThreadOn other(cpu);
    watch.emplace(other.id());
    EXPECT_EQ(watch->cpu(), cpu);
  }
  EXPECT_TRUE(is_seen([&] { return !watch->cpu(); }));
  EXPECT_EQ(ThreadWatch(0).cpu(), std::nullopt);
}

TEST(ReaderFollowerTest, GoesToAReaderThatAsksOftenAndReturnsForTheNext) {
  const int home = allowed_cpus().front();
  const int away = allowed_cpus().back();
  const ThreadOn reader(away);
  EXPECT_TRUE(is_seen([&] {
    ReaderFollower follower;
    if (!move_to_cpu(home)) return false;
    for (uint32_t i = 1; i < ReaderFollower::kProvenCount; ++i) follower.on_request(reader.id());
    const bool has_waited = sched_getcpu() == home;
    follower.on_request(reader.id());
    const bool has_followed = sched_getcpu() == away;
    follower.on_request(reader.id() + 1);
    return has_waited && has_followed && sched_getcpu() == home;
  }));
}

TEST(ReaderFollowerTest, LooksAgainForAReaderThatMoved) {
  const auto cpus = allowed_cpus();
  const auto self = static_cast<uint32_t>(gettid());
  std::atomic<int> seen{-1};
  // The follower's thread follows this one, which moves.
  EXPECT_TRUE(is_seen([&] {
    ReaderFollower follower;
    bool is_there = true;
    for (const int cpu : {cpus.back(), cpus.front()}) {
      is_there = move_to_cpu(cpu) && is_there;
      std::thread([&] {
        for (uint32_t i = 0; i < ReaderFollower::kPeriod + ReaderFollower::kProvenCount; ++i) {
          follower.on_request(self);
        }
        seen = sched_getcpu();
      }).join();
      is_there = is_there && seen == cpu;
    }
    return is_there;
  }));
}

TEST(ReaderFollowerTest, StaysWhereItIsForReadersThatItCannotSee) {
  const auto cpus = allowed_cpus();
  ReaderFollower follower;
  for (uint32_t i = 0; i < 2 * ReaderFollower::kPeriod; ++i) follower.on_request(0);
  for (uint32_t i = 0; i < 2 * ReaderFollower::kPeriod; ++i) follower.on_request(UINT32_MAX);
  EXPECT_EQ(allowed_cpus(), cpus);
}

}  // namespace
}  // namespace varve::fs
