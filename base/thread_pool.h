#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace varve {

/// A fixed number of threads and a bounded queue of tasks. Thread-safe.
class ThreadPool {
 public:
  /// @param queue_count_max  submit() blocks while that many tasks wait; 0 = no bound.
  explicit ThreadPool(size_t thread_count, size_t queue_count_max = 0);
  /// Runs what was queued, then joins.
  ~ThreadPool();

  /// Queues `task`; tasks must not throw.
  void submit(std::function<void()> task);
  /// Queues `task` unless the queue is full; false when it was dropped.
  bool try_submit(std::function<void()> task);
  /// Waits until no task is queued or running.
  void wait_idle();
  size_t thread_count() const { return threads_.size(); }

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable work_available_;
  std::condition_variable space_or_idle_;
  std::deque<std::function<void()>> tasks_;
  size_t queue_count_max_;
  size_t running_count_ = 0;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace varve
