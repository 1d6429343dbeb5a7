#include "fs/control/connection.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <boost/asio/post.hpp>
#include <boost/asio/write.hpp>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <span>

#include "fs/control/control_server.h"

namespace varve::fs {
namespace {

namespace beast = boost::beast;
namespace http = boost::beast::http;

constexpr uint64_t kBodyBytesMax = 1 << 20;
constexpr uint32_t kHeaderBytesMax = 16 << 10;

// "%2F" and "+" as in application/x-www-form-urlencoded.
std::string decode_query_text(std::string_view text) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    unsigned value = 0;
    if (text[i] == '%' && i + 2 < text.size() &&
        std::from_chars(text.data() + i + 1, text.data() + i + 3, value, 16).ptr ==
            text.data() + i + 3) {
      decoded += static_cast<char>(value);
      i += 2;
    } else {
      decoded += text[i] == '+' ? ' ' : text[i];
    }
  }
  return decoded;
}

// 0 for a process of a PID namespace that this one does not contain.
pid_t peer_pid_of(int socket) {
  ucred peer{};
  socklen_t size = sizeof(peer);
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size)) return 0;
  return peer.pid;
}

ControlRequest to_control_request(const http::request<http::string_body>& request) {
  ControlRequest result;
  result.method = std::string(request.method_string());
  const std::string_view target(request.target().data(), request.target().size());
  const size_t question = target.find('?');
  result.path = std::string(target.substr(0, question));
  std::string_view rest = question == std::string_view::npos ? "" : target.substr(question + 1);
  while (!rest.empty()) {
    const size_t end = rest.find('&');
    const std::string_view pair = rest.substr(0, end);
    const size_t equals = pair.find('=');
    result.query.emplace(
        decode_query_text(pair.substr(0, equals)),
        equals == std::string_view::npos ? "" : decode_query_text(pair.substr(equals + 1)));
    rest = end == std::string_view::npos ? "" : rest.substr(end + 1);
  }
  result.body = request.body();
  return result;
}

/// One message without waiting. @return what sendmsg(2) says.
ssize_t send_with_descriptors(int socket, std::string_view text, std::span<const int> fds) {
  alignas(cmsghdr) char control[CMSG_SPACE(ControlServer::kFdsInMessageMax * sizeof(int))]{};
  iovec part{const_cast<char*>(text.data()), text.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = CMSG_SPACE(fds.size_bytes());
  cmsghdr* rights = CMSG_FIRSTHDR(&message);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(fds.size_bytes());
  std::memcpy(CMSG_DATA(rights), fds.data(), fds.size_bytes());
  return sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

}  // namespace

Connection::Connection(Socket socket, ControlApi& api, std::chrono::milliseconds request_deadline,
                       std::function<void(Connection*)> closed)
    : socket_(std::move(socket)),
      peer_pid_(peer_pid_of(socket_.native_handle())),
      api_(api),
      request_deadline_(request_deadline),
      closed_(std::move(closed)),
      deadline_timer_(socket_.get_executor()),
      scope_(std::make_shared<ControlApi::ConnectionScope>(api)) {}

Connection::~Connection() = default;

void Connection::close() {
  if (scope_ == nullptr) return;
  // Detaches what this connection attached.
  scope_.reset();
  deadline_timer_.cancel();
  beast::error_code ignored;
  socket_.close(ignored);
  closed_(this);
}

void Connection::read_request() {
  parser_.reset();
  // A client may have sent the next request with the last one.
  if (buffer_.size() > 0) return read_message();
  // Between requests a connection costs no buffers: thousands of them only hold an attach.
  buffer_ = beast::flat_buffer();
  socket_.async_wait(Socket::wait_read, [self = shared_from_this()](beast::error_code error) {
    if (error || self->scope_ == nullptr) return self->close();
    self->read_message();
  });
}

void Connection::read_message() {
  parser_.emplace();
  parser_->body_limit(kBodyBytesMax);
  parser_->header_limit(kHeaderBytesMax);
  http::async_read(
      socket_, buffer_, *parser_,
      [self = shared_from_this()](beast::error_code error, size_t) { self->on_request(error); });
}

void Connection::on_request(beast::error_code error) {
  if (scope_ == nullptr) return;
  if (error == http::error::body_limit || error == http::error::header_limit ||
      (error && error.category() == beast::error_code(http::error::bad_method).category() &&
       error != http::error::end_of_stream && error != http::error::partial_message)) {
    keeps_alive_ = false;
    respond(ControlApi::error_response(Error(
        ErrorCode::kInvalidArgument, "the request is no acceptable HTTP: " + error.message())));
    return;
  }
  if (error) return close();
  keeps_alive_ = parser_->get().keep_alive();
  ControlRequest request = to_control_request(parser_->get());
  request.peer_pid = peer_pid_;
  auto answer = std::make_shared<ControlAnswer>(
      [weak = weak_from_this(), executor = socket_.get_executor()](ControlResponse response) {
        // Answers come from any thread; std::function wants what it holds to be copyable.
        auto shared = std::make_shared<ControlResponse>(std::move(response));
        boost::asio::post(executor, [weak, shared] {
          if (const auto self = weak.lock()) self->respond(std::move(*shared));
        });
      });
  deadline_timer_.expires_after(request_deadline_);
  deadline_timer_.async_wait([self = shared_from_this(), answer](beast::error_code timer_error) {
    // Not through the answer, which holds this connection weakly: nobody else does by now.
    if (!timer_error && answer->claim()) self->respond(ControlApi::deadline_response());
  });
  api_.handle(request, scope_, answer);
}

void Connection::respond(ControlResponse response) {
  if (scope_ == nullptr) return;
  deadline_timer_.cancel();
  const auto reason = http::obsolete_reason(static_cast<http::status>(response.status));
  response_ = fmt::format(
      "HTTP/1.1 {} {}\r\nContent-Type: application/json\r\n{}Content-Length: {}\r\n\r\n{}",
      response.status, std::string_view(reason.data(), reason.size()),
      keeps_alive_ ? "" : "Connection: close\r\n", response.body.size(), response.body);
  sent_bytes_ = 0;
  fds_ = std::move(response.fds);
  sent_fd_count_ = 0;
  send_descriptors();
}

// Each message carries some of the descriptors and one byte of the answer, the last one as much of
// the answer as the socket takes; what is left follows in send_rest().
void Connection::send_descriptors() {
  while (sent_fd_count_ < fds_.size()) {
    const size_t count = std::min(fds_.size() - sent_fd_count_, ControlServer::kFdsInMessageMax);
    int numbers[ControlServer::kFdsInMessageMax];
    for (size_t i = 0; i < count; ++i) numbers[i] = fds_[sent_fd_count_ + i].get();
    const bool is_last = sent_fd_count_ + count == fds_.size();
    const std::string_view rest = std::string_view(response_).substr(sent_bytes_);
    const ssize_t size = send_with_descriptors(
        socket_.native_handle(), is_last ? rest : rest.substr(0, 1), {numbers, count});
    if (size > 0) {
      sent_fd_count_ += count;
      sent_bytes_ += static_cast<size_t>(size);
      continue;
    }
    if (errno != EAGAIN && errno != EINTR) return close();
    socket_.async_wait(Socket::wait_write, [self = shared_from_this()](beast::error_code error) {
      if (error) return self->close();
      self->send_descriptors();
    });
    return;
  }
  fds_.clear();
  send_rest();
}

void Connection::send_rest() {
  boost::asio::async_write(
      socket_, boost::asio::buffer(response_.data() + sent_bytes_, response_.size() - sent_bytes_),
      [self = shared_from_this()](beast::error_code error, size_t) {
        self->response_ = std::string();
        if (error || !self->keeps_alive_) return self->close();
        self->read_request();
      });
}

}  // namespace varve::fs
