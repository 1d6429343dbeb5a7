#include "chunkstore/source/walk_queue.h"

namespace varve::chunkstore {
namespace {

constexpr size_t kBatchCountMax = 64;

}  // namespace

WalkQueue::~WalkQueue() {
  {
    const std::lock_guard lock(mutex_);
    is_stopped_ = true;
  }
  work_changed_.notify_all();
  batches_changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void WalkQueue::start(size_t thread_count) {
  directories_.emplace_back();
  for (size_t i = 0; i < thread_count; ++i) threads_.emplace_back([this] { run(); });
}

void WalkQueue::push_directory(std::string directory) {
  const std::lock_guard lock(mutex_);
  directories_.push_back(std::move(directory));
  work_changed_.notify_one();
}

bool WalkQueue::put(Batch batch) {
  if (batch.empty()) return true;
  std::unique_lock lock(mutex_);
  batches_changed_.wait(lock, [&] { return is_stopped_ || batches_.size() < kBatchCountMax; });
  if (is_stopped_) return false;
  batches_.push_back(std::move(batch));
  batches_changed_.notify_all();
  return true;
}

Result<std::optional<WalkQueue::Batch>> WalkQueue::take() {
  std::unique_lock lock(mutex_);
  batches_changed_.wait(lock, [&] {
    return error_ || !batches_.empty() || (directories_.empty() && busy_count_ == 0);
  });
  if (error_) return tl::unexpected<Error>(*error_);
  if (batches_.empty()) return std::optional<Batch>();
  Batch batch = std::move(batches_.front());
  batches_.pop_front();
  batches_changed_.notify_all();
  return std::optional<Batch>(std::move(batch));
}

void WalkQueue::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    work_changed_.wait(lock,
                       [&] { return is_stopped_ || !directories_.empty() || busy_count_ == 0; });
    if (is_stopped_ || directories_.empty()) break;
    const std::string directory = std::move(directories_.back());
    directories_.pop_back();
    ++busy_count_;
    lock.unlock();
    auto status = lister_(directory, *this);
    lock.lock();
    --busy_count_;
    if (!status) {
      if (!error_) error_ = std::move(status).error();
      is_stopped_ = true;
      batches_changed_.notify_all();
    }
    if (directories_.empty() && busy_count_ == 0) batches_changed_.notify_all();
    if (is_stopped_ || (directories_.empty() && busy_count_ == 0)) work_changed_.notify_all();
  }
}

}  // namespace varve::chunkstore
