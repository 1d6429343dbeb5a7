#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/unique_fd.h"
#include "fs/transport/transport.h"

namespace varve::fs {

struct SessionOptions {
  TransportKind transport = TransportKind::kAuto;
  TransportOptions transport_options;
  uint16_t background_count_max = 256;
  uint32_t readahead_bytes_max = 1 << 20;
  int init_timeout_ms = 10'000;
  /// Direct reads of the kernel's own do not wait for each other: where loop devices make them.
  bool async_direct_reads = false;
  /// Says why the ring must not be used, or nothing. The default asks the fuse module; tests put
  /// their own answer in.
  std::function<Status()> probe_ring;
};

/// One FUSE connection: INIT, the transport that was decided on before INIT was answered, and
/// notifications. Thread-safe after start().
class Session {
 public:
  /// Answers the INIT that the mount queued and starts the loops.
  ///
  /// @param fuse_fd  /dev/fuse of a fresh mount.
  /// Errors: kTimedOut (no INIT came), kUnsupported (the ring was demanded and cannot be had, or
  /// the kernel's protocol is too old).
  static Result<std::unique_ptr<Session>> start(UniqueFd fuse_fd, RequestHandler& handler,
                                                SessionOptions options, SessionEnded ended);
  ~Session();

  /// kRing or kDev.
  TransportKind transport() const { return transport_; }
  /// Why the ring is not in use although it was allowed; "" when it is, or was not wanted.
  const std::string& fallback_reason() const { return fallback_reason_; }
  /// True when the kernel takes ENOSYS on OPEN and OPENDIR as "needs no opens, keeps its caches".
  bool opens_are_needless() const { return opens_are_needless_; }

  /// Makes the kernel forget the name `name` in directory `parent`. Not from a queue thread: the
  /// kernel may hold the directory's lock while it waits for one. An entry it does not know is no
  /// error.
  Status invalidate_entry(uint64_t parent, std::string_view name);
  /// Makes the kernel forget the attributes and the listing of directory `node_id`.
  Status invalidate_directory(uint64_t node_id);

  /// Ends the loops; no handler runs afterwards. The connection ends when the session is destroyed.
  void stop();

 private:
  Session(UniqueFd fuse_fd, RequestHandler& handler, SessionOptions options, SessionEnded ended);

  Status negotiate();
  Status answer_init(const fuse::InHeader& header, const fuse::InitIn& in);
  Status prepare_ring(uint64_t kernel_flags);
  Status start_loops();
  Status notify(int32_t code, const void* body, size_t body_bytes, std::string_view name);

  UniqueFd fuse_fd_;
  RequestHandler& handler_;
  SessionOptions options_;
  SessionEnded ended_;
  TransportKind transport_ = TransportKind::kDev;
  std::string fallback_reason_;
  bool opens_are_needless_ = false;
  std::unique_ptr<Transport> ring_;
  std::unique_ptr<Transport> dev_;
};

/// Fails with the reason when the kernel's fuse module does not offer the ring.
Status probe_fuse_ring();

}  // namespace varve::fs
