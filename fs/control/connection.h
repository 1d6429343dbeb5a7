#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <functional>
#include <memory>
#include <optional>

#include "fs/control/control_api.h"

namespace varve::fs {

/// One client of the control socket: requests one after another, each answered before the next is
/// read. Loop-local; kept alive by its pending operations. Included by control_server.cc and
/// connection.cc only.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  using Socket = boost::asio::local::stream_protocol::socket;

  Connection(Socket socket, ControlApi& api, std::chrono::milliseconds request_deadline,
             std::function<void(Connection*)> closed);
  ~Connection();

  /// Its first request is on its way, most likely: waiting for it would be one call more.
  void start() { read_message(); }
  void close();

 private:
  using Parser = boost::beast::http::request_parser<boost::beast::http::string_body>;

  /// Waits for the next request.
  void read_request();
  void read_message();
  void on_request(boost::beast::error_code error);
  void respond(ControlResponse response);
  void send_descriptors();
  void send_rest();

  Socket socket_;
  const pid_t peer_pid_;
  ControlApi& api_;
  const std::chrono::milliseconds request_deadline_;
  const std::function<void(Connection*)> closed_;
  boost::asio::steady_timer deadline_timer_;
  boost::beast::flat_buffer buffer_;
  std::optional<Parser> parser_;
  std::shared_ptr<ControlApi::ConnectionScope> scope_;
  bool keeps_alive_ = true;
  std::string response_;
  size_t sent_bytes_ = 0;
  std::vector<UniqueFd> fds_;
  size_t sent_fd_count_ = 0;
};

}  // namespace varve::fs
