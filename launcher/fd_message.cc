#include "launcher/fd_message.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace varve::launcher {
namespace {

union ControlBuffer {
  char bytes[CMSG_SPACE(sizeof(int) * kMessageFdsMax)];
  cmsghdr align;
};

}  // namespace

int send_message(int socket, const void* data, size_t size, std::span<const int> fds) {
  iovec vector{const_cast<void*>(data), size};
  msghdr message{};
  message.msg_iov = &vector;
  message.msg_iovlen = 1;
  ControlBuffer control{};
  if (!fds.empty()) {
    message.msg_control = control.bytes;
    message.msg_controllen = CMSG_SPACE(fds.size_bytes());
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(header), fds.data(), fds.size_bytes());
  }
  ssize_t n;
  do {
    n = ::sendmsg(socket, &message, MSG_NOSIGNAL);
  } while (n < 0 && errno == EINTR);
  if (n < 0) return errno;
  return static_cast<size_t>(n) == size ? 0 : EPROTO;
}

int receive_message(int socket, void* data, size_t size, int* fds, size_t* fd_count) {
  iovec vector{data, size};
  msghdr message{};
  message.msg_iov = &vector;
  message.msg_iovlen = 1;
  ControlBuffer control{};
  message.msg_control = control.bytes;
  message.msg_controllen = sizeof control.bytes;
  ssize_t n;
  do {
    n = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  } while (n < 0 && errno == EINTR);
  if (n < 0) return errno;
  size_t count = 0;
  const size_t room = fd_count != nullptr ? *fd_count : 0;
  for (cmsghdr* h = CMSG_FIRSTHDR(&message); h != nullptr; h = CMSG_NXTHDR(&message, h)) {
    if (h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS) continue;
    const size_t here = (h->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < here; ++i) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(h) + i * sizeof(int), sizeof fd);
      if (count < room) {
        fds[count++] = fd;
      } else {
        ::close(fd);
      }
    }
  }
  if (fd_count != nullptr) *fd_count = count;
  if (n == 0) return EPIPE;
  return static_cast<size_t>(n) == size && (message.msg_flags & MSG_TRUNC) == 0 ? 0 : EPROTO;
}

}  // namespace varve::launcher
