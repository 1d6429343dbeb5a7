#include "fs/mounter/message.h"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>

namespace varve::fs::mounter {
namespace {

struct Header {
  uint32_t sequence;
  uint32_t error;
  char operation;
};

}  // namespace

Status send_message(int socket, const Message& message) {
  Header header{message.sequence, static_cast<uint32_t>(message.error), message.operation};
  const size_t text_size = std::min(message.text.size(), kTextBytesMax);
  iovec parts[2] = {{&header, sizeof(header)}, {const_cast<char*>(message.text.data()), text_size}};
  msghdr out{};
  out.msg_iov = parts;
  out.msg_iovlen = 2;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))]{};
  if (message.fd) {
    out.msg_control = control;
    out.msg_controllen = sizeof(control);
    cmsghdr* rights = CMSG_FIRSTHDR(&out);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int));
    const int fd = message.fd.get();
    std::memcpy(CMSG_DATA(rights), &fd, sizeof(fd));
  }
  ssize_t sent;
  do {
    sent = sendmsg(socket, &out, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  if (sent < 0) return fail_errno("sending to the mount helper");
  return {};
}

Result<Message> receive_message(int socket) {
  Header header{};
  char text[kTextBytesMax];
  iovec parts[2] = {{&header, sizeof(header)}, {text, sizeof(text)}};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
  msghdr in{};
  in.msg_iov = parts;
  in.msg_iovlen = 2;
  in.msg_control = control;
  in.msg_controllen = sizeof(control);
  ssize_t size;
  do {
    size = recvmsg(socket, &in, MSG_CMSG_CLOEXEC);
  } while (size < 0 && errno == EINTR);
  if (size < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
    return fail(ErrorCode::kTimedOut, "the mount helper does not answer");
  }
  if (size < 0) return fail_errno("receiving from the mount helper");
  Message message;
  if (const cmsghdr* rights = CMSG_FIRSTHDR(&in);
      rights != nullptr && rights->cmsg_type == SCM_RIGHTS) {
    int fd;
    std::memcpy(&fd, CMSG_DATA(rights), sizeof(fd));
    message.fd.reset(fd);
  }
  if (static_cast<size_t>(size) < sizeof(header)) {
    return fail(ErrorCode::kUnavailable, "the mount helper has ended");
  }
  message.sequence = header.sequence;
  message.operation = header.operation;
  message.error =
      header.error < kErrorCodeCount ? static_cast<ErrorCode>(header.error) : ErrorCode::kInternal;
  message.text.assign(text, static_cast<size_t>(size) - sizeof(header));
  return message;
}

}  // namespace varve::fs::mounter
