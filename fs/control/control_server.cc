#include "fs/control/control_server.h"

#include <signal.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <set>

#include "fs/control/connection.h"
#include "fs/descriptor_reserve.h"

namespace varve::fs {

using boost::asio::local::stream_protocol;

class ControlServer::Impl {
 public:
  Impl(std::string path, ControlApi& api, int64_t request_deadline_ms, LogSink log)
      : path_(std::move(path)),
        api_(api),
        request_deadline_(request_deadline_ms),
        log_(std::move(log)),
        acceptor_(context_),
        tick_timer_(context_),
        signals_(context_) {}

  Status listen();
  int run(const std::vector<int>& signals, const std::function<bool()>& should_end);
  void stop() {
    boost::asio::post(context_, [this] { end(); });
  }
  size_t connection_count() const { return connections_.size(); }
  void hide() {
    if (!is_hidden_) rename(path_.c_str(), hidden_path().c_str());
    is_hidden_ = true;
  }
  void show() {
    if (is_hidden_) rename(hidden_path().c_str(), path_.c_str());
    is_hidden_ = false;
  }
  bool is_hidden() const { return is_hidden_; }

 private:
  std::string hidden_path() const { return path_ + ".ending"; }
  void accept();
  void tick(const std::function<bool()>& should_end);
  void end();

  const std::string path_;
  ControlApi& api_;
  const std::chrono::milliseconds request_deadline_;
  const LogSink log_;
  boost::asio::io_context context_{1};
  stream_protocol::acceptor acceptor_;
  boost::asio::steady_timer tick_timer_;
  boost::asio::signal_set signals_;
  std::set<Connection*> connections_;
  bool is_accepting_ = false;
  bool is_hidden_ = false;
  bool is_ended_ = false;
  int signal_ = 0;
};

Status ControlServer::Impl::listen() {
  if (path_.size() >= sizeof(sockaddr_un::sun_path)) {
    return fail(ErrorCode::kInvalidArgument, "the path of the socket '" + path_ + "' is too long");
  }
  unlink(path_.c_str());
  unlink(hidden_path().c_str());
  boost::system::error_code error;
  const stream_protocol::endpoint endpoint(path_);
  acceptor_.open(endpoint.protocol(), error);
  // Nobody can connect before the mode is right.
  const mode_t mask = umask(0177);
  if (!error) acceptor_.bind(endpoint, error);
  umask(mask);
  if (!error) acceptor_.listen(boost::asio::socket_base::max_listen_connections, error);
  if (error) return fail_errno(error.value(), "listening at '" + path_ + "'");
  accept();
  return {};
}

void ControlServer::Impl::accept() {
  is_accepting_ = true;
  acceptor_.async_accept([this](boost::system::error_code error, stream_protocol::socket socket) {
    if (is_ended_) return;
    if (error) {
      // Out of descriptors, most likely: the next tick tries again.
      is_accepting_ = false;
      log_(LogLevel::kWarning, "accept", "accepting on the control socket: " + error.message());
      return;
    }
    const bool was_last = is_reserved_descriptor(socket.native_handle());
    auto connection =
        std::make_shared<Connection>(std::move(socket), api_, request_deadline_,
                                     [this](Connection* closed) { connections_.erase(closed); });
    connections_.insert(connection.get());
    connection->start();
    if (was_last) {
      is_accepting_ = false;
      log_(LogLevel::kWarning, "accept", "few descriptors are left: new connections have to wait");
      return;
    }
    accept();
  });
}

int ControlServer::Impl::run(const std::vector<int>& signals,
                             const std::function<bool()>& should_end) {
  sigset_t awaited;
  sigemptyset(&awaited);
  for (const int number : signals) {
    signals_.add(number);
    sigaddset(&awaited, number);
  }
  pthread_sigmask(SIG_UNBLOCK, &awaited, nullptr);
  if (!signals.empty()) {
    signals_.async_wait([this](boost::system::error_code error, int number) {
      if (error) return;
      signal_ = number;
      end();
    });
  }
  tick(should_end);
  context_.run();
  return signal_;
}

void ControlServer::Impl::tick(const std::function<bool()>& should_end) {
  tick_timer_.expires_after(std::chrono::seconds(1));
  tick_timer_.async_wait([this, &should_end](boost::system::error_code error) {
    if (error || is_ended_) return;
    if (should_end()) {
      end();
      return;
    }
    if (!is_accepting_ && !only_reserved_descriptors_are_left()) accept();
    tick(should_end);
  });
}

void ControlServer::Impl::end() {
  if (is_ended_) return;
  is_ended_ = true;
  // Before the sockets close, so that nobody connects to a server that does not answer.
  unlink(is_hidden_ ? hidden_path().c_str() : path_.c_str());
  boost::system::error_code ignored;
  acceptor_.close(ignored);
  tick_timer_.cancel();
  signals_.cancel(ignored);
  const std::set<Connection*> connections = connections_;
  for (Connection* connection : connections) connection->close();
}

Result<std::unique_ptr<ControlServer>> ControlServer::listen(const std::string& path,
                                                             ControlApi& api,
                                                             int64_t request_deadline_ms,
                                                             LogSink log) {
  auto impl = std::make_unique<Impl>(path, api, request_deadline_ms, std::move(log));
  VARVE_TRY(impl->listen());
  return std::unique_ptr<ControlServer>(new ControlServer(std::move(impl)));
}

ControlServer::ControlServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ControlServer::~ControlServer() = default;

int ControlServer::run(const std::vector<int>& signals, const std::function<bool()>& should_end) {
  return impl_->run(signals, should_end);
}
void ControlServer::stop() {
  impl_->stop();
}
void ControlServer::hide() {
  impl_->hide();
}
void ControlServer::show() {
  impl_->show();
}
bool ControlServer::is_hidden() const {
  return impl_->is_hidden();
}
size_t ControlServer::connection_count() const {
  return impl_->connection_count();
}

}  // namespace varve::fs
