#include "fs/fetch/fetch_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>

#include "tests/unit/fs/fake_request.h"

namespace varve::fs {
namespace {

/// Notes the batches it gets; the first one waits until it is let go.
struct Notes {
  std::promise<void> go;
  std::shared_future<void> gone = go.get_future().share();
  std::mutex mutex;
  std::vector<size_t> batch_sizes;
};

class NotingExecutor : public ReadExecutor {
 public:
  explicit NotingExecutor(Notes& notes) : notes_(notes) {}
  void execute(const std::vector<std::shared_ptr<ReadOperation>>& batch) override {
    notes_.gone.wait();
    std::lock_guard lock(notes_.mutex);
    notes_.batch_sizes.push_back(batch.size());
  }

 private:
  Notes& notes_;
};

std::shared_ptr<ReadOperation> read_at(FakeRequest& request, uint64_t offset, uint32_t size) {
  return std::make_shared<ReadOperation>(
      request, nullptr, std::vector<ReadSegment>{{offset, size, 0}}, size, kNoDeadline);
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

}  // namespace
}  // namespace varve::fs
