#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_set>
#include <vector>

#include "base/error.h"
#include "fs/fetch/read_ahead.h"
#include "fs/fetch/read_operation.h"

namespace varve::fs {

/// Chunks of a layer to bring before anybody asks for them.
struct AheadWork {
  std::shared_ptr<AttachedLayer> layer;
  ChunkRange chunks;
  Deadline deadline;
  int reader_cpu;  ///< Where whoever is read ahead of runs.
};

/// Carries out reads on a thread of a FetchPool. Loop-local.
class ReadExecutor {
 public:
  virtual ~ReadExecutor() = default;
  /// @param batch  Reads of one layer whose image ranges follow one another.
  virtual void execute(const std::vector<std::shared_ptr<ReadOperation>>& batch) = 0;
  virtual void read_ahead(const AheadWork& work) = 0;
};

/// The threads that may block on one store: a store that hangs keeps its own threads and nobody
/// else's. Threads start when there is work for them, up to a bound, and stay. Thread-safe.
class FetchPool {
 public:
  using ExecutorFactory = std::function<std::unique_ptr<ReadExecutor>()>;

  FetchPool(size_t thread_count_max, ExecutorFactory make_executor);
  /// stop() without a deadline.
  ~FetchPool();

  /// Drops what is queued and joins the threads that end by `deadline`; false when one still hangs
  /// in the store then. Idempotent.
  bool stop(Deadline deadline);

  /// Queues a read. While all threads are busy, reads that continue one another are taken as one
  /// batch, of at most kBatchBytesMax.
  void submit(std::shared_ptr<ReadOperation> read);
  /// Queues other work against the store (an attach). kUnavailable when no thread runs and none can
  /// be started: the task was dropped then. Once there is one, work never lacks a thread; where the
  /// system has no more of them, those that run do it all.
  Status submit_task(std::function<void()> task);
  /// Queues read-ahead, which runs when nothing else waits, on at most half of the threads. Drops
  /// it when the queue is full.
  void submit_ahead(AheadWork work);
  /// True while other work waits for a thread: read-ahead gives way then.
  bool wants_threads();
  /// True when nothing is queued and no thread works.
  bool is_idle();

  static constexpr uint64_t kBatchBytesMax = 4 << 20;

 private:
  void run();
  Status start_thread_if_needed();
  bool can_take_ahead() const { return !ahead_.empty() && ahead_running_count_ < ahead_count_max_; }
  std::vector<std::shared_ptr<ReadOperation>> take_batch();

  const size_t thread_count_max_;
  const size_t ahead_count_max_ = thread_count_max_ / 2;  // Of the threads.
  const ExecutorFactory make_executor_;
  std::mutex mutex_;
  std::condition_variable work_available_;
  std::condition_variable thread_ended_;
  std::deque<std::shared_ptr<ReadOperation>> reads_;
  std::deque<std::function<void()>> tasks_;
  std::deque<AheadWork> ahead_;
  size_t ahead_running_count_ = 0;
  size_t idle_count_ = 0;
  std::unordered_set<std::thread::id> ended_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace varve::fs
