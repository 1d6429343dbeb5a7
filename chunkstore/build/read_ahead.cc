#include "chunkstore/build/read_ahead.h"

namespace varve::chunkstore {

size_t ReadItem::byte_count() const {
  size_t count = chunk.size();
  for (const SmallContent& file : files) count += file.bytes.size();
  return count;
}

bool ReadQueue::push(ReadItem item) {
  const size_t size = item.byte_count();
  std::unique_lock lock(mutex_);
  changed_.wait(lock,
                [&] { return is_cancelled_ || items_.empty() || bytes_ + size <= bytes_max_; });
  if (is_cancelled_) return false;
  bytes_ += size;
  items_.push_back(std::move(item));
  const bool is_first = items_.size() == 1;
  lock.unlock();
  if (is_first) changed_.notify_all();
  return true;
}

void ReadQueue::close(Status status) {
  {
    const std::lock_guard lock(mutex_);
    is_closed_ = true;
    status_ = std::move(status);
  }
  changed_.notify_all();
}

Result<std::optional<ReadItem>> ReadQueue::pop() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return is_closed_ || !items_.empty(); });
  if (items_.empty()) {
    VARVE_TRY(status_);
    return std::nullopt;
  }
  std::optional<ReadItem> item = std::move(items_.front());
  items_.pop_front();
  bytes_ -= item->byte_count();
  // Not for every item: waking the reader costs as much as reading one.
  const bool has_much_space = bytes_ <= bytes_max_ / 2;
  lock.unlock();
  if (has_much_space) changed_.notify_all();
  return item;
}

void ReadQueue::cancel() {
  {
    const std::lock_guard lock(mutex_);
    is_cancelled_ = true;
  }
  changed_.notify_all();
}

ReadAhead::ReadAhead(size_t thread_count, size_t job_bytes_max) : job_bytes_max_(job_bytes_max) {
  threads_.reserve(thread_count);
  for (size_t i = 0; i < thread_count; ++i) threads_.emplace_back([this] { run(); });
}

ReadAhead::~ReadAhead() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
    waiting_.clear();
  }
  job_available_.notify_all();
  for (const auto& job : jobs_) job->queue.cancel();
  for (std::thread& thread : threads_) thread.join();
}

void ReadAhead::push(Job job) {
  auto queued = std::make_shared<QueuedJob>(std::move(job), job_bytes_max_);
  jobs_.push_back(queued);
  {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(std::move(queued));
  }
  job_available_.notify_one();
}

Result<std::optional<ReadItem>> ReadAhead::pop() {
  VARVE_ASSIGN(auto item, jobs_.front()->queue.pop());
  if (!item) jobs_.pop_front();
  return item;
}

void ReadAhead::run() {
  for (;;) {
    std::shared_ptr<QueuedJob> job;
    {
      std::unique_lock lock(mutex_);
      job_available_.wait(lock, [&] { return is_stopping_ || !waiting_.empty(); });
      if (is_stopping_) return;
      job = std::move(waiting_.front());
      waiting_.pop_front();
    }
    job->queue.close(job->job(job->queue));
  }
}

}  // namespace varve::chunkstore
