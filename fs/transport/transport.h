#pragma once

#include <cstddef>
#include <functional>

#include "base/error.h"
#include "fs/fuse/request.h"

namespace varve::fs {

enum class TransportKind { kAuto, kRing, kDev };

/// "auto", "ring" or "dev".
const char* transport_name(TransportKind kind);

struct TransportOptions {
  size_t payload_bytes = 1 << 20;  ///< Largest data of one reply; page_count_max × 4096.
  size_t depth = 8;                ///< Ring entries a queue starts with.
  /// A queue whose entries all wait for the store gets more of them, up to this many, so that
  /// requests which need no store go on.
  size_t depth_max = 1024;
};

/// Carries requests between the kernel and a RequestHandler. start() and stop() are called once
/// each, by one thread.
class Transport {
 public:
  virtual ~Transport() = default;
  /// Begins to deliver requests; after the INIT reply.
  virtual Status start() = 0;
  /// Ends the loops: when it returns no thread is inside the handler. Requests still unanswered
  /// stay valid until the transport is destroyed; answering them then has no effect.
  virtual void stop() = 0;
};

/// Called once when the kernel ended the session (unmounted, aborted). On a queue thread.
using SessionEnded = std::function<void()>;

}  // namespace varve::fs
