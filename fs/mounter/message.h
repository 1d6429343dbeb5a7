#pragma once

#include <cstdint>
#include <string>

#include "base/error.h"
#include "base/unique_fd.h"

/// What the daemon and its mount helper say to each other over a SOCK_SEQPACKET socket pair.
namespace varve::fs::mounter {

inline constexpr char kMount = 'm';
/// An answer to kMount: the mount is the daemon's to keep and to clone; the helper has none.
inline constexpr char kOriginal = 'o';
/// In the helper's first message: the kernel mounts no files, so there will be loop devices.
inline constexpr char kLoops = 'l';
inline constexpr char kDrop = 'd';
inline constexpr size_t kTextBytesMax = 4096;

/// A request (key) or an answer (error text, "" for success). Both ends are the same binary.
struct Message {
  uint32_t sequence = 0;
  char operation = 0;
  ErrorCode error = ErrorCode::kInternal;  ///< Answers with a text only.
  std::string text;
  UniqueFd fd;  ///< kMount: the root of the FUSE mount (O_PATH), and the new mount back.
};

Status send_message(int socket, const Message& message);
/// Errors: kUnavailable when the other end is gone, kTimedOut by the socket's SO_RCVTIMEO.
Result<Message> receive_message(int socket);

}  // namespace varve::fs::mounter
