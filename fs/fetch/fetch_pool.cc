#include "fs/fetch/fetch_pool.h"

#include <pthread.h>

#include <system_error>

#include "fs/cpu_placement.h"

namespace varve::fs {
namespace {

constexpr size_t kAheadQueueCountMax = 16;

// Where a read starts and ends in the image; holes do not matter for neighbourhood.
uint64_t first_offset(const ReadOperation& read) {
  return read.segments.front().image_offset;
}
uint64_t end_offset(const ReadOperation& read) {
  return read.segments.back().image_offset + read.segments.back().size;
}

}  // namespace

FetchPool::FetchPool(size_t thread_count_max, ExecutorFactory make_executor)
    : thread_count_max_(thread_count_max), make_executor_(std::move(make_executor)) {}

FetchPool::~FetchPool() {
  stop(kNoDeadline);
}

bool FetchPool::stop(Deadline deadline) {
  bool all_ended = true;
  std::vector<std::thread> to_join;
  {
    std::unique_lock lock(mutex_);
    stopping_ = true;
    reads_.clear();
    tasks_.clear();
    ahead_.clear();
    work_available_.notify_all();
    const auto have_ended = [&] { return ended_.size() == threads_.size(); };
    if (deadline == kNoDeadline) {
      thread_ended_.wait(lock, have_ended);
    } else {
      all_ended = thread_ended_.wait_until(lock, deadline, have_ended);
    }
    for (std::thread& thread : threads_) {
      if (thread.joinable() && ended_.contains(thread.get_id())) {
        to_join.push_back(std::move(thread));
      }
    }
  }
  for (std::thread& thread : to_join) thread.join();
  return all_ended;
}

void FetchPool::submit(std::shared_ptr<ReadOperation> read) {
  {
    std::lock_guard lock(mutex_);
    reads_.push_back(std::move(read));
    static_cast<void>(start_thread_if_needed());
  }
  work_available_.notify_one();
}

Status FetchPool::submit_task(std::function<void()> task) {
  {
    std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
    Status started = start_thread_if_needed();
    if (!started && threads_.empty()) {
      tasks_.pop_back();
      return started;
    }
  }
  work_available_.notify_one();
  return {};
}

void FetchPool::submit_ahead(AheadWork work) {
  {
    std::lock_guard lock(mutex_);
    if (stopping_ || ahead_.size() >= kAheadQueueCountMax) return;
    ahead_.push_back(std::move(work));
    if (!can_take_ahead()) return;
    static_cast<void>(start_thread_if_needed());
  }
  work_available_.notify_one();
}

bool FetchPool::wants_threads() {
  std::lock_guard lock(mutex_);
  return stopping_ || (idle_count_ == 0 && !(reads_.empty() && tasks_.empty()) &&
                       threads_.size() >= thread_count_max_);
}

bool FetchPool::is_idle() {
  std::lock_guard lock(mutex_);
  return reads_.empty() && tasks_.empty() && ahead_.empty() && idle_count_ == threads_.size();
}

Status FetchPool::start_thread_if_needed() {
  const size_t ahead_count = can_take_ahead() ? 1 : 0;
  if (stopping_ || idle_count_ >= reads_.size() + tasks_.size() + ahead_count) return {};
  if (threads_.size() >= thread_count_max_) return {};
  try {
    threads_.emplace_back([this] { run(); });
  } catch (const std::system_error& error) {
    return fail(ErrorCode::kUnavailable, std::string("starting a thread: ") + error.what());
  }
  return {};
}

std::vector<std::shared_ptr<ReadOperation>> FetchPool::take_batch() {
  std::vector<std::shared_ptr<ReadOperation>> batch;
  uint64_t bytes = 0;
  do {
    bytes += reads_.front()->size;
    batch.push_back(std::move(reads_.front()));
    reads_.pop_front();
  } while (idle_count_ == 0 && !reads_.empty() && reads_.front()->layer == batch.back()->layer &&
           first_offset(*reads_.front()) == end_offset(*batch.back()) &&
           bytes + reads_.front()->size <= kBatchBytesMax);
  return batch;
}

void FetchPool::run() {
  pthread_setname_np(pthread_self(), "fetch");
  // A queue of the ring, which is bound to its CPU, may have started this thread.
  allow_cpus_of_process();
  const std::unique_ptr<ReadExecutor> executor = make_executor_();
  std::unique_lock lock(mutex_);
  for (;;) {
    ++idle_count_;
    work_available_.wait(
        lock, [&] { return stopping_ || !reads_.empty() || !tasks_.empty() || can_take_ahead(); });
    --idle_count_;
    if (stopping_) break;
    if (!reads_.empty()) {
      auto batch = take_batch();
      lock.unlock();
      executor->execute(batch);
      batch.clear();
    } else if (!tasks_.empty()) {
      std::function<void()> task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      task();
      task = nullptr;
    } else {
      AheadWork work = std::move(ahead_.front());
      ahead_.pop_front();
      const bool is_alone = ++ahead_running_count_ == 1;
      lock.unlock();
      // The reader goes on meanwhile. What more threads do, they do because he may have to wait.
      if (is_alone) leave_cpu(work.reader_cpu);
      executor->read_ahead(work);
      work.layer.reset();
      lock.lock();
      --ahead_running_count_;
      continue;
    }
    lock.lock();
  }
  ended_.insert(std::this_thread::get_id());
  thread_ended_.notify_all();
}

}  // namespace varve::fs
