#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/unique_fd.h"

namespace varve::launcher {

/// An HTTP/1.1 client for varvefs' UNIX socket, as small as one request after the other on one
/// connection needs: responses carry Content-Length, descriptors come with the body's bytes.
/// Loop-local. An attach lives as long as the connection that made it.
class ControlClient {
 public:
  struct Response {
    int status = 0;
    std::string body;
    std::vector<UniqueFd> fds;
  };

  /// Errors: kUnavailable when nothing listens (also when the socket does not exist).
  static Result<ControlClient> connect(const std::string& socket_path, int64_t timeout_ms);

  /// Sends a request; `body` may be empty.
  Status send(const std::string& method, const std::string& path, const std::string& body);
  /// The response to the oldest request not yet answered. A status that is not 2xx becomes an error
  /// whose text is varvefs' own message.
  Result<Response> receive();
  /// The process that listens, as this one numbers it; 0 when it cannot be seen from here.
  pid_t peer_pid() const;

 private:
  explicit ControlClient(UniqueFd socket) : socket_(std::move(socket)) {}
  Status receive_more(std::string& buffer, std::vector<UniqueFd>& fds);

  UniqueFd socket_;
  std::string surplus_;  // Bytes after the last response.
};

/// Status, the length of the body and where it starts, from the head of a response. For tests.
struct ResponseHead {
  int status = 0;
  size_t body_size = 0;
  size_t body_offset = 0;
};
/// Nothing yet when the head is incomplete. Errors: kCorruption.
Result<std::optional<ResponseHead>> parse_response_head(std::string_view bytes);

}  // namespace varve::launcher
