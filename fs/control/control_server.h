#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "fs/control/control_api.h"
#include "fs/log.h"

namespace varve::fs {

/// HTTP/1.1 on a UNIX socket, in front of a ControlApi. Owned and run by one thread; nothing in it
/// blocks. Descriptors of an answer travel as SCM_RIGHTS with its first bytes, at most
/// kFdsInMessageMax a message: a client collects them with every recvmsg(2) until it has the whole
/// answer.
class ControlServer {
 public:
  static constexpr size_t kFdsInMessageMax = 200;

  /// Listens at `path` (mode 0600), replacing a dead socket. The caller holds the run directory's
  /// lock.
  ///
  /// @param request_deadline_ms  When a request that is still unanswered gets kTimedOut.
  static Result<std::unique_ptr<ControlServer>> listen(const std::string& path, ControlApi& api,
                                                       int64_t request_deadline_ms, LogSink log);
  ~ControlServer();
  ControlServer(const ControlServer&) = delete;
  ControlServer& operator=(const ControlServer&) = delete;

  /// Serves until one of `signals` arrives, stop() is called or `should_end` says so (asked about
  /// once a second). Removes the socket, and ends every connection, before it returns. A signal
  /// that the calling thread had blocked is taken, too.
  ///
  /// @return  The signal, or 0.
  int run(const std::vector<int>& signals, const std::function<bool()>& should_end);
  /// Makes run() return. Thread-safe.
  void stop();
  /// Takes the socket out of sight: who connected before is served as ever, nobody else connects.
  /// Idempotent, as show(), which undoes it; both on run()'s thread.
  void hide();
  void show();
  bool is_hidden() const;
  /// Open connections; on run()'s thread.
  size_t connection_count() const;

 private:
  class Impl;  // Keeps Boost.Asio and Beast out of this header.

  explicit ControlServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace varve::fs
