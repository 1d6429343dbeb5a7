#include "chunkstore/source/walk_queue.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace varve::chunkstore {

WalkQueue::~WalkQueue() {
  {
    const std::lock_guard lock(mutex_);
    is_stopped_ = true;
  }
  work_changed_.notify_all();
  space_changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void WalkQueue::start(size_t thread_count) {
  // The first one stays in memory.
  static_cast<void>(directories_.push(""));
  for (size_t i = 0; i < thread_count; ++i) threads_.emplace_back([this] { run(); });
}

Status WalkQueue::push_directory(std::string directory) {
  const std::lock_guard lock(mutex_);
  VARVE_TRY(directories_.push(std::move(directory)));
  work_changed_.notify_one();
  return {};
}

bool WalkQueue::put(Batch batch) {
  if (batch.empty()) return true;
  std::unique_lock lock(mutex_);
  space_changed_.wait(lock, [&] { return is_stopped_ || found_.size() < kFoundCountMax; });
  if (is_stopped_) return false;
  const bool was_empty = found_.empty();
  std::ranges::move(batch, std::back_inserter(found_));
  lock.unlock();
  if (was_empty) found_changed_.notify_one();
  return true;
}

Result<std::optional<WalkQueue::Batch>> WalkQueue::take() {
  std::unique_lock lock(mutex_);
  found_changed_.wait(lock, [&] {
    return error_ || !found_.empty() || (directories_.empty() && busy_count_ == 0);
  });
  if (error_) return tl::unexpected<Error>(*error_);
  if (found_.empty()) return std::optional<Batch>();
  std::optional<Batch> batch = std::exchange(found_, {});
  lock.unlock();
  space_changed_.notify_all();
  return batch;
}

void WalkQueue::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    work_changed_.wait(lock,
                       [&] { return is_stopped_ || !directories_.empty() || busy_count_ == 0; });
    if (is_stopped_ || directories_.empty()) break;
    auto directory = directories_.pop();
    ++busy_count_;
    lock.unlock();
    Status status = directory ? lister_(*directory, *this)
                              : Status(tl::unexpected<Error>(std::move(directory).error()));
    lock.lock();
    --busy_count_;
    if (!status) {
      if (!error_) error_ = std::move(status).error();
      is_stopped_ = true;
      found_changed_.notify_one();
      space_changed_.notify_all();
    }
    if (directories_.empty() && busy_count_ == 0) found_changed_.notify_one();
    if (is_stopped_ || (directories_.empty() && busy_count_ == 0)) work_changed_.notify_all();
  }
}

}  // namespace varve::chunkstore
