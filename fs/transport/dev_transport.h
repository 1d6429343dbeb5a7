#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "fs/transport/loop_thread.h"
#include "fs/transport/payload_pool.h"
#include "fs/transport/transport.h"

namespace varve::fs {

/// Requests by read(2) and write(2) on /dev/fuse: the whole session where the ring is off, and
/// FORGET and INTERRUPT beside the ring.
class DevTransport : public Transport {
 public:
  /// What the kernel sends here.
  enum class Role { kEverything, kBesideRing };

  /// @param fuse_fd  Borrowed; stays open until the transport is gone.
  DevTransport(int fuse_fd, RequestHandler& handler, Role role, size_t thread_count,
               const TransportOptions& options, SessionEnded ended);
  ~DevTransport() override;

  Status start() override;
  void stop() override;

 private:
  class DevRequest;

  void run(const LoopThread& thread);
  void linger() const;

  const int fuse_fd_;
  RequestHandler& handler_;
  const Role role_;
  const size_t thread_count_;
  PayloadPool payloads_;
  SessionEnded ended_;
  std::once_flag ended_once_;
  std::vector<std::unique_ptr<LoopThread>> threads_;
};

}  // namespace varve::fs
