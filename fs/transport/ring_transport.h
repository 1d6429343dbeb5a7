#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "fs/transport/transport.h"

namespace varve::fs {

class RingQueue;

/// Requests by FUSE over io_uring: one queue and one pinned thread for every CPU that can exist.
/// FORGET and INTERRUPT do not come this way: a DevTransport with one thread runs beside it.
class RingTransport : public Transport {
 public:
  /// Sets up every ring, before the INIT reply: a connection that was promised a ring cannot go
  /// back. Errors: what io_uring_setup said, naming the queue.
  ///
  /// @param fuse_fd  Borrowed; stays open until the transport is gone.
  static Result<std::unique_ptr<RingTransport>> prepare(int fuse_fd, RequestHandler& handler,
                                                        const TransportOptions& options,
                                                        SessionEnded ended);
  ~RingTransport() override;

  /// Registers the entries of every queue. An error means that the kernel refused one: nothing is
  /// delivered and the caller reads /dev/fuse instead.
  Status start() override;
  void stop() override;

 private:
  explicit RingTransport(SessionEnded ended);

  SessionEnded ended_;
  std::once_flag ended_once_;
  std::vector<std::unique_ptr<RingQueue>> queues_;
};

/// The number of CPUs that can exist (the kernel wants a queue for each): the last one of
/// /sys/devices/system/cpu/possible, plus one.
Result<size_t> possible_cpu_count();

}  // namespace varve::fs
