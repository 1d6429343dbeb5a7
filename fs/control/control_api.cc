#include "fs/control/control_api.h"

#include <unistd.h>

#include <algorithm>
#include <set>

#include "base/clock.h"
#include "fs/control/control_json.h"

namespace varve::fs {
namespace {

/// Nothing that was asked for is ignored.
///
/// @param parameter  The one that the query may have.
Status check_request(const ControlRequest& request, std::string_view parameter) {
  for (const auto& [name, value] : request.query) {
    if (name.empty() || name != parameter) {
      return fail(ErrorCode::kInvalidArgument, "unknown query parameter " + quoted(name));
    }
    if (request.query.count(name) > 1) {
      return fail(ErrorCode::kInvalidArgument, "query parameter " + quoted(name) + " twice");
    }
  }
  if (request.method == "GET" && !request.body.empty()) {
    return fail(ErrorCode::kInvalidArgument, quoted("GET " + request.path) + " takes no body");
  }
  return {};
}

}  // namespace

/// A request that is understood: answered at once by the one function, or by the other when it can
/// be.
struct ControlApi::Route {
  std::string_view what;
  std::string_view parameter;  ///< The one that its query may have.
  Result<std::string> (ControlApi::*answer)(const ControlRequest&);
  void (ControlApi::*answer_later)(const ControlRequest&, const std::shared_ptr<ConnectionScope>&,
                                   std::shared_ptr<ControlAnswer>);
};

constexpr ControlApi::Route ControlApi::kRoutes[] = {
    {"POST /v1/attach", {}, nullptr, &ControlApi::attach},
    {"POST /v1/detach", {}, &ControlApi::detach, nullptr},
    {"POST /v1/namespaces", {}, &ControlApi::keep_namespace, nullptr},
    {"GET /v1/status", {}, &ControlApi::status, nullptr},
    {"GET /v1/layers", {}, &ControlApi::layers, nullptr},
    {"GET /v1/stats", "layer", &ControlApi::stats, nullptr},
    {"GET /v1/stats/files", "layer", nullptr, &ControlApi::stats_files},
};

bool ControlAnswer::give(ControlResponse response) {
  if (!claim()) return false;
  deliver(std::move(response));
  return true;
}

ControlApi::ConnectionScope::~ConnectionScope() {
  for (const std::string& lease : leases_) api_.release(lease);
}

ControlApi::ControlApi(DaemonFacts facts, KeptNamespaces namespaces, AttachService& attaches,
                       NodeTable& nodes, ReadService& reads)
    : facts_(std::move(facts)),
      namespaces_(std::move(namespaces)),
      attaches_(attaches),
      nodes_(nodes),
      reads_(reads),
      start_ns_(monotonic_ns()) {}

ControlResponse ControlApi::error_response(const Error& error) {
  return {error_code_to_http_status(error.code()), error_json(error), {}};
}

ControlResponse ControlApi::deadline_response() {
  return error_response(Error(ErrorCode::kTimedOut, "the store did not answer in time"));
}

void ControlApi::handle(const ControlRequest& request,
                        const std::shared_ptr<ConnectionScope>& scope,
                        std::shared_ptr<ControlAnswer> answer) {
  const std::string what = request.method + " " + request.path;
  const auto route = std::ranges::find(kRoutes, what, &Route::what);
  Status understood = route == std::end(kRoutes)
                          ? fail(ErrorCode::kNotFound, "there is no " + quoted(what))
                          : check_request(request, route->parameter);
  if (!understood) {
    answer->give(error_response(understood.error()));
    return;
  }
  if (route->answer_later != nullptr) {
    (this->*route->answer_later)(request, scope, std::move(answer));
    return;
  }
  Result<std::string> body = (this->*route->answer)(request);
  answer->give(body ? ControlResponse{200, std::move(*body), {}} : error_response(body.error()));
}

void ControlApi::attach(const ControlRequest& request,
                        const std::shared_ptr<ConnectionScope>& scope,
                        std::shared_ptr<ControlAnswer> answer) {
  auto parsed = parse_attach_request(request.body);
  if (!parsed) {
    answer->give(error_response(parsed.error()));
    return;
  }
  const bool keeps = parsed->keeps;
  // The scope is held weakly: its end is what tells that the client is gone.
  attaches_.attach(
      std::move(*parsed), [this, keeps, scope = std::weak_ptr(scope),
                           answer = std::move(answer)](Result<std::shared_ptr<Attachment>> result) {
        if (!result) {
          answer->give(error_response(result.error()));
          return;
        }
        std::shared_ptr<Attachment> attachment = std::move(*result);
        const std::shared_ptr<ConnectionScope> owner = scope.lock();
        if (owner == nullptr || !answer->claim()) {
          attaches_.detach(std::move(attachment));
          return;
        }
        ControlResponse response{200, attachment_json(*attachment, facts_.mountpoint), {}};
        response.fds = std::move(attachment->mounts);
        if (!keeps) {
          std::lock_guard lock(owner->mutex_);
          owner->leases_.insert(attachment->lease);
        }
        {
          std::lock_guard lock(mutex_);
          attachments_.emplace(attachment->lease, attachment);
        }
        answer->deliver(std::move(response));
      });
}

bool ControlApi::release(const std::string& lease) {
  std::shared_ptr<Attachment> attachment;
  {
    std::lock_guard lock(mutex_);
    const auto found = attachments_.find(lease);
    if (found == attachments_.end()) return false;
    attachment = std::move(found->second);
    attachments_.erase(found);
  }
  attaches_.detach(std::move(attachment));
  return true;
}

Result<std::string> ControlApi::detach(const ControlRequest& request) {
  VARVE_ASSIGN(const std::string lease, parse_detach_request(request.body));
  if (!release(lease)) return fail(ErrorCode::kNotFound, "no attach has lease " + quoted(lease));
  return std::string("{}");
}

Result<std::string> ControlApi::keep_namespace(const ControlRequest& request) {
  VARVE_ASSIGN(const std::string name, parse_namespace_request(request.body));
  if (request.peer_pid <= 0) {
    return fail(ErrorCode::kUnsupported, "the client's process cannot be seen from here");
  }
  // The client waits for the answer, so its process is there and its namespace is the one it means.
  VARVE_TRY(namespaces_.keep(name, request.peer_pid));
  return std::string("{}");
}

size_t ControlApi::attachment_count() const {
  std::lock_guard lock(mutex_);
  return attachments_.size();
}

void ControlApi::detach_all() {
  std::map<std::string, std::shared_ptr<Attachment>> attachments;
  {
    std::lock_guard lock(mutex_);
    attachments.swap(attachments_);
  }
  for (auto& [lease, attachment] : attachments) attaches_.detach(std::move(attachment));
}

Result<std::string> ControlApi::status(const ControlRequest&) {
  StatusFigures figures;
  figures.pid = getpid();
  figures.version = facts_.version;
  figures.mountpoint = facts_.mountpoint;
  figures.transport = facts_.transport;
  figures.transport_fallback = facts_.transport_fallback;
  std::set<std::string> domains;
  const auto views = nodes_.attached_views();
  for (const auto& view : views) domains.insert(view->domain);
  figures.domains.assign(domains.begin(), domains.end());
  figures.uptime_ms = (monotonic_ns() - start_ns_) / 1'000'000;
  figures.attachment_count = attachment_count();
  figures.layer_count = views.size();
  figures.view_count = nodes_.view_count();
  figures.pending_read_count = reads_.pending().count();
  figures.oldest_read_ms = reads_.pending().oldest_age_ms();
  figures.cache_bytes = reads_.cache().bytes_used();
  figures.cache_bytes_max = reads_.cache().bytes_max();
  return status_json(figures);
}

Result<std::string> ControlApi::layers(const ControlRequest&) {
  return layers_json(nodes_.attached_views(), facts_.mountpoint);
}

Result<std::shared_ptr<AttachedLayer>> ControlApi::layer_of(const ControlRequest& request) const {
  const auto id = request.query.find("layer");
  if (id == request.query.end()) return fail(ErrorCode::kInvalidArgument, "'layer' is missing");
  for (const auto& view : nodes_.attached_views()) {
    if (view->layer->id().hex() == id->second) return view->layer;
  }
  return fail(ErrorCode::kNotFound, "layer " + quoted(id->second) + " is not attached");
}

Result<std::string> ControlApi::stats(const ControlRequest& request) {
  std::vector<std::shared_ptr<AttachedLayer>> layers;
  if (request.query.contains("layer")) {
    VARVE_ASSIGN(std::shared_ptr<AttachedLayer> layer, layer_of(request));
    layers.push_back(std::move(layer));
  } else {
    std::set<const AttachedLayer*> seen;
    for (const auto& view : nodes_.attached_views()) {
      if (seen.insert(view->layer.get()).second) layers.push_back(view->layer);
    }
  }
  return stats_json(layers);
}

void ControlApi::stats_files(const ControlRequest& request, const std::shared_ptr<ConnectionScope>&,
                             std::shared_ptr<ControlAnswer> answer) {
  auto layer = layer_of(request);
  if (!layer) {
    answer->give(error_response(layer.error()));
    return;
  }
  attaches_.run_in_background([layer = std::move(*layer), answer = std::move(answer)] {
    const auto files = find_touched_files(*layer);
    answer->give(files ? ControlResponse{200, touched_files_json(layer->id(), *files), {}}
                       : error_response(files.error()));
  });
}

}  // namespace varve::fs
