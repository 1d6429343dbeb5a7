#include "launcher/control_client.h"

#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <utility>

#include "base/bytes.h"
#include "launcher/json_text.h"

namespace varve::launcher {
namespace {

constexpr size_t kHeadBytesMax = 64 << 10;
constexpr size_t kBodyBytesMax = 64 << 20;
// SCM_MAX_FD of the kernel: more cannot come with one message.
constexpr size_t kFdsPerMessageMax = 253;

bool equal_ignoring_case(std::string_view a, std::string_view b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), [](char x, char y) {
           const auto lower = [](char c) {
             return c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c;
           };
           return lower(x) == lower(y);
         });
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

template <class T>
bool parse_whole(std::string_view text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && !text.empty();
}

tl::unexpected<Error> malformed(const char* what) {
  return fail(ErrorCode::kCorruption, std::string("varvefs sent a malformed response: ") + what);
}

/// 4xx and 5xx as an error of the kind they came from; the numbers are error.cc's table.
Error response_error(const ControlClient::Response& response) {
  ErrorCode code = ErrorCode::kInternal;
  for (int i = 0; i < kErrorCodeCount; ++i) {
    const auto candidate = static_cast<ErrorCode>(i);
    if (error_code_to_http_status(candidate) == response.status) {
      code = candidate;
      break;
    }
  }
  const ErrorText text = parse_error_text(response.body);
  for (int i = 0; i < kErrorCodeCount; ++i) {
    if (error_code_name(static_cast<ErrorCode>(i)) == text.code) code = static_cast<ErrorCode>(i);
  }
  return Error(code, text.message.empty() ? "varvefs answered " + std::to_string(response.status)
                                          : text.message);
}

}  // namespace

Result<std::optional<ResponseHead>> parse_response_head(std::string_view bytes) {
  const size_t end = bytes.find("\r\n\r\n");
  if (end == std::string_view::npos) {
    if (bytes.size() > kHeadBytesMax) return malformed("endless head");
    return std::nullopt;
  }
  ResponseHead head;
  head.body_offset = end + 4;
  std::string_view rest = bytes.substr(0, end + 2);
  const std::string_view line = rest.substr(0, rest.find("\r\n"));
  if (!line.starts_with("HTTP/1.") || line.size() < 12 ||
      !parse_whole(line.substr(9, 3), head.status)) {
    return malformed("no status line");
  }
  rest.remove_prefix(line.size() + 2);
  bool has_length = false;
  while (!rest.empty()) {
    const std::string_view field = rest.substr(0, rest.find("\r\n"));
    rest.remove_prefix(field.size() + 2);
    const size_t colon = field.find(':');
    if (colon == std::string_view::npos) return malformed("a header without a colon");
    const std::string_view name = field.substr(0, colon);
    if (equal_ignoring_case(name, "Transfer-Encoding")) return malformed("chunked");
    if (!equal_ignoring_case(name, "Content-Length")) continue;
    if (has_length || !parse_whole(trimmed(field.substr(colon + 1)), head.body_size) ||
        head.body_size > kBodyBytesMax) {
      return malformed("bad Content-Length");
    }
    has_length = true;
  }
  if (!has_length && head.status != 204 && head.status >= 200)
    return malformed("no Content-Length");
  return head;
}

Result<ControlClient> ControlClient::connect(const std::string& socket_path, int64_t timeout_ms) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (socket_path.size() >= sizeof address.sun_path) {
    return fail(ErrorCode::kInvalidArgument, quoted(socket_path) + " is too long for a socket");
  }
  std::memcpy(address.sun_path, socket_path.data(), socket_path.size());
  UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket) return fail_errno("creating a socket");
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    const int connect_errno = errno;
    if (connect_errno == ENOENT || connect_errno == ECONNREFUSED) {
      return fail(ErrorCode::kUnavailable, "nothing listens on " + quoted(socket_path));
    }
    return fail_errno(connect_errno, "connecting to " + quoted(socket_path));
  }
  const timeval timeout{timeout_ms / 1000, (timeout_ms % 1000) * 1000};
  if (::setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout) != 0 ||
      ::setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout) != 0) {
    return fail_errno("setting socket timeouts");
  }
  return ControlClient(std::move(socket));
}

Status ControlClient::send(const std::string& method, const std::string& path,
                           const std::string& body) {
  std::string request = method + " " + path + " HTTP/1.1\r\nHost: varvefs\r\n";
  if (!body.empty()) request += "Content-Type: application/json\r\n";
  request += "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
  std::string_view rest = request;
  while (!rest.empty()) {
    const ssize_t n = ::send(socket_.get(), rest.data(), rest.size(), MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail_errno(errno == EAGAIN ? ETIMEDOUT : errno, "asking varvefs");
    rest.remove_prefix(static_cast<size_t>(n));
  }
  return {};
}

Status ControlClient::receive_more(std::string& buffer, std::vector<UniqueFd>& fds) {
  char bytes[4096];
  iovec vector{bytes, sizeof bytes};
  union {
    char bytes[CMSG_SPACE(sizeof(int) * kFdsPerMessageMax)];
    cmsghdr align;
  } control;
  msghdr message{};
  message.msg_iov = &vector;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes;
  message.msg_controllen = sizeof control.bytes;
  ssize_t n;
  do {
    n = ::recvmsg(socket_.get(), &message, MSG_CMSG_CLOEXEC);
  } while (n < 0 && errno == EINTR);
  if (n < 0) return fail_errno(errno == EAGAIN ? ETIMEDOUT : errno, "waiting for varvefs");
  for (cmsghdr* h = CMSG_FIRSTHDR(&message); h != nullptr; h = CMSG_NXTHDR(&message, h)) {
    if (h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS) continue;
    for (size_t i = 0; i < (h->cmsg_len - CMSG_LEN(0)) / sizeof(int); ++i) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(h) + i * sizeof(int), sizeof fd);
      fds.emplace_back(fd);
    }
  }
  if (n == 0) return fail(ErrorCode::kUnavailable, "varvefs closed the connection");
  if ((message.msg_flags & MSG_CTRUNC) != 0) return malformed("descriptors were lost");
  buffer.append(bytes, static_cast<size_t>(n));
  return {};
}

Result<ControlClient::Response> ControlClient::receive() {
  Response response;
  std::string buffer = std::exchange(surplus_, {});
  std::optional<ResponseHead> head;
  for (;;) {
    VARVE_ASSIGN(head, parse_response_head(buffer));
    if (head && head->status < 200) {
      buffer.erase(0, head->body_offset);
      response.fds.clear();
      continue;
    }
    if (head && buffer.size() - head->body_offset >= head->body_size) break;
    VARVE_TRY(receive_more(buffer, response.fds));
  }
  response.status = head->status;
  response.body = buffer.substr(head->body_offset, head->body_size);
  surplus_ = buffer.substr(head->body_offset + head->body_size);
  if (response.status < 200 || response.status > 299) {
    return tl::unexpected<Error>(response_error(response));
  }
  return response;
}

pid_t ControlClient::peer_pid() const {
  ucred peer{};
  socklen_t size = sizeof peer;
  return ::getsockopt(socket_.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 ? peer.pid : 0;
}

}  // namespace varve::launcher
