#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "fs/control/attach_service.h"
#include "fs/control/kept_namespaces.h"

namespace varve::fs {

struct ControlRequest {
  std::string method;
  std::string path;                               ///< Without the query.
  std::multimap<std::string, std::string> query;  ///< Decoded.
  std::string body;
  pid_t peer_pid = 0;  ///< Of the process that connected; 0 when it cannot be seen from here.
};

struct ControlResponse {
  int status = 200;
  std::string body;           ///< JSON.
  std::vector<UniqueFd> fds;  ///< Sent along as SCM_RIGHTS.
};

/// The one answer to a request: the first of the handler and the deadline gives it. Thread-safe.
class ControlAnswer {
 public:
  explicit ControlAnswer(std::function<void(ControlResponse)> deliver)
      : deliver_(std::move(deliver)) {}
  /// True for the one caller that may then deliver().
  bool claim() { return !claimed_.exchange(true); }
  void deliver(ControlResponse response) { deliver_(std::move(response)); }
  /// Both; false when another answer was first.
  bool give(ControlResponse response);

 private:
  std::atomic<bool> claimed_{false};
  const std::function<void(ControlResponse)> deliver_;
};

/// What `GET /v1/status` shows of the daemon beside its counters.
struct DaemonFacts {
  std::string version;
  std::string mountpoint;
  std::string transport;           ///< "ring" or "dev".
  std::string transport_fallback;  ///< Why not the ring; "" when it was not wanted or is in use.
};

/// The control API: JSON in, JSON out; varvefs(8) defines it. Thread-safe.
class ControlApi {
 public:
  /// What dies with a connection. Thread-safe.
  class ConnectionScope {
   public:
    explicit ConnectionScope(ControlApi& api) : api_(api) {}
    /// Detaches what the connection attached.
    ~ConnectionScope();

   private:
    friend class ControlApi;
    ControlApi& api_;
    std::mutex mutex_;
    std::set<std::string> leases_;
  };

  ControlApi(DaemonFacts facts, KeptNamespaces namespaces, AttachService& attaches,
             NodeTable& nodes, ReadService& reads);

  /// Answers `request`, at once or later, from any thread.
  void handle(const ControlRequest& request, const std::shared_ptr<ConnectionScope>& scope,
              std::shared_ptr<ControlAnswer> answer);
  /// What a request that took too long is answered.
  static ControlResponse deadline_response();
  static ControlResponse error_response(const Error& error);

  size_t attachment_count() const;
  /// Detaches everything.
  void detach_all();

 private:
  struct Route;
  static const Route kRoutes[];

  void attach(const ControlRequest& request, const std::shared_ptr<ConnectionScope>& scope,
              std::shared_ptr<ControlAnswer> answer);
  Result<std::string> detach(const ControlRequest& request);
  Result<std::string> keep_namespace(const ControlRequest& request);
  bool release(const std::string& lease);
  Result<std::string> status(const ControlRequest& request);
  Result<std::string> layers(const ControlRequest& request);
  Result<std::string> stats(const ControlRequest& request);
  void stats_files(const ControlRequest& request, const std::shared_ptr<ConnectionScope>& scope,
                   std::shared_ptr<ControlAnswer> answer);
  Result<std::shared_ptr<AttachedLayer>> layer_of(const ControlRequest& request) const;

  const DaemonFacts facts_;
  KeptNamespaces namespaces_;
  AttachService& attaches_;
  NodeTable& nodes_;
  ReadService& reads_;
  const uint64_t start_ns_;
  mutable std::mutex mutex_;
  std::map<std::string, std::shared_ptr<Attachment>> attachments_;  // By lease.
};

}  // namespace varve::fs
