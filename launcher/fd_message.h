#pragma once

#include <cstddef>
#include <span>

namespace varve::launcher {

inline constexpr size_t kMessageFdsMax = 8;

/// Sends `size` bytes and the descriptors as one message. Raw system calls only.
/// @return 0 or an errno value; EPIPE when the peer has gone (no SIGPIPE).
int send_message(int socket, const void* data, size_t size, std::span<const int> fds);

/// Receives one message of exactly `size` bytes; descriptors are born CLOEXEC.
/// @param fd_count  In: room in `fds`. Out: how many came.
/// @return 0; EPIPE when the peer has gone; EPROTO when the message has another size.
int receive_message(int socket, void* data, size_t size, int* fds, size_t* fd_count);

}  // namespace varve::launcher
