#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"
#include "base/hash.h"

namespace varve::chunkstore {

/// A small file as a reader thread hands it over.
struct SmallContent {
  Bytes bytes;
  Digest digest;
};

/// What a reader thread hands over at a time: a chunk of a large file, or some small files.
struct ReadItem {
  Bytes chunk;
  std::vector<SmallContent> files;
  size_t byte_count() const;
};

/// The items of one job, in order; pushing blocks while too many bytes wait. Thread-safe.
class ReadQueue {
 public:
  explicit ReadQueue(size_t bytes_max) : bytes_max_(bytes_max) {}
  /// False when the reading was cancelled: the job should end.
  bool push(ReadItem item);
  /// Ends the items; an error comes after those that were pushed.
  void close(Status status);
  /// The next item, nothing at the end. Errors: what close() was given.
  Result<std::optional<ReadItem>> pop();
  void cancel();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<ReadItem> items_;
  size_t bytes_ = 0;
  size_t bytes_max_;
  bool is_closed_ = false;
  bool is_cancelled_ = false;
  Status status_;
};

/// Runs reading jobs on several threads and hands their items over in the order of the jobs, so
/// that cold files are read in parallel while one thread consumes them. Threads take jobs in
/// order, so the first job always moves and nothing can block for ever. push() and pop() belong
/// to one thread. Memory: thread_count times `job_bytes_max`, plus one item each.
class ReadAhead {
 public:
  /// Pushes its items into the queue; its status goes to close().
  using Job = std::function<Status(ReadQueue&)>;

  ReadAhead(size_t thread_count, size_t job_bytes_max);
  /// Cancels what runs and joins.
  ~ReadAhead();

  /// True when enough jobs are queued to keep every thread busy.
  bool is_full() const { return jobs_.size() >= 2 * threads_.size(); }
  bool is_empty() const { return jobs_.empty(); }
  void push(Job job);
  /// The next item of the oldest job; nothing at that job's end, after which the next job is the
  /// oldest.
  Result<std::optional<ReadItem>> pop();

 private:
  struct QueuedJob {
    QueuedJob(Job j, size_t bytes_max) : job(std::move(j)), queue(bytes_max) {}
    Job job;
    ReadQueue queue;
  };
  void run();

  size_t job_bytes_max_;
  std::mutex mutex_;
  std::condition_variable job_available_;
  std::deque<std::shared_ptr<QueuedJob>> waiting_;  ///< Not taken by a thread yet.
  bool is_stopping_ = false;
  std::deque<std::shared_ptr<QueuedJob>> jobs_;  ///< All whose items were not all popped.
  std::vector<std::thread> threads_;
};

}  // namespace varve::chunkstore
