#include "base/thread_pool.h"

#include <utility>

namespace varve {

ThreadPool::ThreadPool(size_t thread_count, size_t queue_count_max)
    : queue_count_max_(queue_count_max) {
  threads_.reserve(thread_count);
  for (size_t i = 0; i < thread_count; ++i) threads_.emplace_back([this] { run(); });
}

ThreadPool::~ThreadPool() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  work_available_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ThreadPool::submit(std::function<void()> task) {
  std::unique_lock lock(mutex_);
  space_or_idle_.wait(lock,
                      [&] { return queue_count_max_ == 0 || tasks_.size() < queue_count_max_; });
  tasks_.push_back(std::move(task));
  lock.unlock();
  work_available_.notify_one();
}

bool ThreadPool::try_submit(std::function<void()> task) {
  {
    std::lock_guard lock(mutex_);
    if (queue_count_max_ != 0 && tasks_.size() >= queue_count_max_) return false;
    tasks_.push_back(std::move(task));
  }
  work_available_.notify_one();
  return true;
}

void ThreadPool::wait_idle() {
  std::unique_lock lock(mutex_);
  space_or_idle_.wait(lock, [&] { return tasks_.empty() && running_count_ == 0; });
}

void ThreadPool::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    work_available_.wait(lock, [&] { return stopping_ || !tasks_.empty(); });
    if (tasks_.empty()) return;
    std::function<void()> task = std::move(tasks_.front());
    tasks_.pop_front();
    ++running_count_;
    lock.unlock();
    space_or_idle_.notify_all();
    task();
    task = nullptr;
    lock.lock();
    --running_count_;
    if (tasks_.empty() && running_count_ == 0) space_or_idle_.notify_all();
  }
}

}  // namespace varve
