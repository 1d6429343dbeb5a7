#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <unordered_set>

#include "fs/fetch/read_operation.h"

namespace varve::fs {

/// The reads that wait for the store. A thread of its own answers those whose deadline passed with
/// EIO, and those whose process is being killed with EINTR. Thread-safe.
///
/// An INTERRUPT by itself is not answered: the kernel sends one for any signal, and a reader that
/// got EINTR for a timer or a garbage collector's signal would see a failed read (or SIGBUS,
/// through a mapping), which no local filesystem ever shows.
class PendingReads {
 public:
  /// True when thread `pid` is being killed or is gone. 0 means that the thread is not visible.
  using IsBeingKilled = std::function<bool(uint32_t pid)>;

  /// Told once of each read that has waited for a quarter of its time, on the thread of this.
  using Late = std::function<void(const std::shared_ptr<ReadOperation>& read)>;

  explicit PendingReads(IsBeingKilled is_being_killed, Late late = nullptr);
  ~PendingReads();
  PendingReads(const PendingReads&) = delete;
  PendingReads& operator=(const PendingReads&) = delete;

  /// Enters `read`, whose answer may come at any moment from now on.
  void add(std::shared_ptr<ReadOperation> read);
  /// `read` is claimed and filled: answers with its data.
  void finish(ReadOperation& read);
  /// `read` is claimed: answers with an error.
  void finish_with_error(ReadOperation& read, int errno_value);
  /// The kernel's INTERRUPT for request `unique`, before or after add().
  void interrupt(uint64_t unique);
  /// Answers every read with `errno_value`, also those added later.
  void abort_all(int errno_value);

  size_t count() const;
  /// Age of the oldest read, in milliseconds; 0 when there is none.
  uint64_t oldest_age_ms() const;

 private:
  struct Entry {
    std::shared_ptr<ReadOperation> read;
    MonotonicClock::time_point added;
    bool is_interrupted = false;
    bool is_late = false;
  };

  void run();
  void answer_due();
  void remove(uint64_t unique);
  /// Answers `read` unless it is claimed or answered.
  bool try_answer(ReadOperation& read, int errno_value);

  const IsBeingKilled is_being_killed_;
  const Late late_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::unordered_map<uint64_t, Entry> entries_;
  size_t interrupted_count_ = 0;
  // INTERRUPTs that overtook their request, oldest first, bounded.
  std::unordered_set<uint64_t> early_interrupts_;
  std::deque<uint64_t> early_interrupt_order_;
  int abort_errno_ = 0;
  bool stopping_ = false;
  std::thread thread_;
};

/// Asks /proc/<pid>/status whether SIGKILL is pending: a fatal signal of any kind becomes one.
bool is_being_killed(uint32_t pid);

}  // namespace varve::fs
