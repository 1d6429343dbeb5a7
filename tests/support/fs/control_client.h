#pragma once

#include <boost/json.hpp>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/unique_fd.h"

namespace varve::test {

/// One connection to a varvefs control socket. What it attaches lives as long as it does.
class ControlClient {
 public:
  struct Answer {
    int status = 0;
    boost::json::value body;
    std::vector<UniqueFd> fds;
  };

  /// Errors: what connect(2) said.
  static Result<ControlClient> connect(const std::string& socket_path);

  Result<Answer> get(const std::string& target) { return request("GET", target, ""); }
  Result<Answer> post(const std::string& target, const boost::json::value& body) {
    return request("POST", target, boost::json::serialize(body));
  }
  Result<Answer> request(const std::string& method, const std::string& target,
                         const std::string& body);
  /// Sends a request and does not wait.
  Status send(const std::string& method, const std::string& target, const std::string& body);
  /// The answer to one.
  Result<Answer> receive();

 private:
  explicit ControlClient(UniqueFd socket) : socket_(std::move(socket)) {}
  Result<size_t> receive_some(std::string& text, std::vector<UniqueFd>& fds);

  UniqueFd socket_;
};

}  // namespace varve::test
