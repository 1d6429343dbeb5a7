#pragma once

#include <liburing.h>

#include <atomic>
#include <future>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/unique_fd.h"
#include "fs/transport/transport.h"

namespace varve::fs {

/// One io_uring, its entries and the thread that owns both. Only that thread submits; answers from
/// other threads are handed over through a list and an eventfd.
class RingQueue {
 public:
  RingQueue(int fuse_fd, uint16_t queue_id, RequestHandler& handler,
            const TransportOptions& options, SessionEnded ended);
  ~RingQueue();
  RingQueue(const RingQueue&) = delete;
  RingQueue& operator=(const RingQueue&) = delete;

  /// Starts the thread; it sets up the ring (a ring has one submitter) and waits for start().
  Status prepare();
  /// Registers the first entries and begins to deliver.
  Status start();
  /// Ends the thread. Idempotent.
  void stop();

 private:
  class Entry;

  void run();
  Status set_up_ring();
  Status register_entries();
  void loop();
  void add_entry();
  void trim_answered();
  void arm_wake();
  io_uring_sqe* next_submission();
  void submit_command(Entry& entry, uint32_t command, uint64_t commit_id);
  void on_completion(const io_uring_cqe& completion);
  void on_command_result(Entry& entry, int result);
  void dispatch(Entry& entry);
  void commit(Entry& entry);
  void hand_over(Entry& entry);
  void commit_handed_over();
  void wake();

  const int fuse_fd_;
  const uint16_t queue_id_;
  RequestHandler& handler_;
  const TransportOptions options_;
  SessionEnded ended_;

  std::thread thread_;
  std::promise<Status> prepared_;
  std::promise<bool> go_;
  std::promise<Status> started_;
  bool go_was_set_ = false;
  std::atomic<bool> stopping_{false};

  // Owned by the thread.
  io_uring ring_{};
  bool ring_is_set_up_ = false;
  std::vector<std::unique_ptr<Entry>> entries_;
  size_t waiting_count_ = 0;  // Entries the kernel can put a request into.
  size_t dead_count_ = 0;     // Entries the kernel gave back for good.
  std::vector<Entry*> to_trim_;
  Status first_failure_;
  uint64_t wake_value_ = 0;

  UniqueFd wake_fd_;
  std::mutex handed_over_mutex_;
  std::vector<Entry*> handed_over_;
};

}  // namespace varve::fs
