#include "tests/support/fs/control_client.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>

#include "base/file_io.h"

namespace varve::test {

Result<ControlClient> ControlClient::connect(const std::string& socket_path) {
  UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd) return fail_errno("socket");
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, socket_path.c_str(), sizeof(address.sun_path) - 1);
  if (::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address))) {
    return fail_errno("connecting to '" + socket_path + "'");
  }
  return ControlClient(std::move(fd));
}

Status ControlClient::send(const std::string& method, const std::string& target,
                           const std::string& body) {
  const std::string text =
      method + " " + target +
      " HTTP/1.1\r\nHost: varvefs\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" +
      body;
  return write_all(socket_.get(), as_bytes(text));
}

Result<size_t> ControlClient::receive_some(std::string& text, std::vector<UniqueFd>& fds) {
  char buffer[64 << 10];
  alignas(cmsghdr) char control[CMSG_SPACE(253 * sizeof(int))];
  iovec part{buffer, sizeof(buffer)};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  ssize_t size;
  do {
    size = recvmsg(socket_.get(), &message, MSG_CMSG_CLOEXEC);
  } while (size < 0 && errno == EINTR);
  if (size < 0) return fail_errno("receiving");
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof(fd));
      fds.emplace_back(fd);
    }
  }
  text.append(buffer, static_cast<size_t>(size));
  return static_cast<size_t>(size);
}

Result<ControlClient::Answer> ControlClient::receive() {
  Answer answer;
  std::string text;
  size_t header_end;
  for (;;) {
    while ((header_end = text.find("\r\n\r\n")) == std::string::npos) {
      VARVE_ASSIGN(const size_t size, receive_some(text, answer.fds));
      if (size == 0) return fail(ErrorCode::kUnavailable, "the server closed the connection");
    }
    answer.status = std::stoi(text.substr(text.find(' ') + 1));
    if (answer.status >= 200) break;
    // An interim response.
    text.erase(0, header_end + 4);
  }
  const std::string field = "Content-Length: ";
  const size_t body_size = std::stoul(text.substr(text.find(field) + field.size()));
  while (text.size() < header_end + 4 + body_size) {
    VARVE_ASSIGN(const size_t size, receive_some(text, answer.fds));
    if (size == 0) return fail(ErrorCode::kUnavailable, "the server closed the connection");
  }
  answer.body = boost::json::parse(text.substr(header_end + 4));
  return answer;
}

Result<ControlClient::Answer> ControlClient::request(const std::string& method,
                                                     const std::string& target,
                                                     const std::string& body) {
  VARVE_TRY(send(method, target, body));
  return receive();
}

}  // namespace varve::test
