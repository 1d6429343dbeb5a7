#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>

namespace varve {
namespace {

TEST(ThreadPoolTest, RunsEveryTaskBeforeItIsDestroyed) {
  std::atomic<int> count{0};
  {
    ThreadPool pool(3, 2);
    for (int i = 0; i < 100; ++i) pool.submit([&] { ++count; });
  }
  EXPECT_EQ(count, 100);
}

TEST(ThreadPoolTest, TrySubmitDropsWhenTheQueueIsFull) {
  std::promise<void> release;
  std::promise<void> started;
  ThreadPool pool(1, 1);
  pool.submit([&] {
    started.set_value();
    release.get_future().wait();
  });
  started.get_future().wait();
  EXPECT_TRUE(pool.try_submit([] {}));
  EXPECT_FALSE(pool.try_submit([] {}));
  release.set_value();
  pool.wait_idle();
}

}  // namespace
}  // namespace varve
