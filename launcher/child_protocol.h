#pragma once

#include <cstdint>

namespace varve::launcher {

// What `varve run` and the first process of its sandbox tell each other over a SOCK_SEQPACKET pair.
// The sandbox's command never holds this socket. The first process is cloned before the image is
// known: what depends on it is told afterwards.

/// To the child, with the descriptors of the `tasks` files of v1 groups to join: the id maps are
/// written.
struct IdMapsMessage {
  uint32_t unused = 0;
};

/// To the child, with the descriptors of its root, its /dev and (--net host) of resolv.conf. Texts
/// follow it, each NUL-terminated: host name, working directory, arguments, variables, paths to
/// try. They come in messages of kTextBytesPerMessage, the last one shorter.
struct MountsMessage {
  static constexpr uint32_t kGroupsMax = 64;
  static constexpr uint32_t kTextBytesPerMessage = 32 << 10;
  uint32_t uid = 0;
  uint32_t gid = 0;
  uint32_t group_count = 0;
  uint32_t groups[kGroupsMax] = {};
  char home[256] = "/root";  ///< NUL-terminated.
  uint64_t text_bytes = 0;
  uint32_t argument_count = 0;
  uint32_t variable_count = 0;
  uint32_t candidate_count = 0;
  bool set_home = false;  ///< `home` becomes a variable.
};

enum class ReportKind : uint32_t {
  kSetupFailed,  ///< operation, errno_value
  kExecFailed,   ///< errno_value
  kTerminal,     ///< Carries the master of the pseudo-terminal.
  kEnded,        ///< wait_status of the command, ready_ns
};

/// From the child.
struct Report {
  ReportKind kind = ReportKind::kSetupFailed;
  int32_t errno_value = 0;
  uint32_t operation = 0;  ///< Index into Plan::child_operations.
  int32_t wait_status = 0;
  uint64_t ready_ns = 0;  ///< CLOCK_MONOTONIC when the command's exec had succeeded.
};

}  // namespace varve::launcher
