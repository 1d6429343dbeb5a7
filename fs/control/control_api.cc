#include "fs/control/control_api.h"

#include <unistd.h>

#include <algorithm>
#include <set>

#include "base/clock.h"
#include "fs/control/control_json.h"

namespace varve::fs {
namespace {

struct Route {
  std::string_view what;
  std::string_view parameter;  ///< The one that its query may have.
};
constexpr Route kRoutes[] = {{"POST /v1/attach", {}},         {"POST /v1/detach", {}},
                             {"POST /v1/namespaces", {}},     {"GET /v1/status", {}},
                             {"GET /v1/layers", {}},          {"GET /v1/stats", "layer"},
                             {"GET /v1/stats/files", "layer"}};

/// Nothing that was asked for is ignored.
Status check_route(const ControlRequest& request, const std::string& what) {
  const auto route = std::ranges::find(kRoutes, what, &Route::what);
  if (route == std::end(kRoutes)) return fail(ErrorCode::kNotFound, "there is no " + quoted(what));
  for (const auto& [name, value] : request.query) {
    if (name.empty() || name != route->parameter) {
      return fail(ErrorCode::kInvalidArgument, "unknown query parameter " + quoted(name));
    }
    if (request.query.count(name) > 1) {
      return fail(ErrorCode::kInvalidArgument, "query parameter " + quoted(name) + " twice");
    }
  }
  if (request.method == "GET" && !request.body.empty()) {
    return fail(ErrorCode::kInvalidArgument, quoted(what) + " takes no body");
  }
  return {};
}

}  // namespace

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
  if (const Status known = check_route(request, what); !known) {
    answer->give(error_response(known.error()));
    return;
  }
  if (what == "POST /v1/attach") return attach(request, scope, std::move(answer));
  if (what == "GET /v1/stats/files") return stats_files(request, std::move(answer));
  Result<std::string> body;
  if (what == "GET /v1/status") body = status();
  if (what == "GET /v1/layers") body = layers();
  if (what == "GET /v1/stats") body = stats(request);
  if (what == "POST /v1/detach") body = detach(request);
  if (what == "POST /v1/namespaces") body = keep_namespace(request);
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

std::string ControlApi::status() const {
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

std::string ControlApi::layers() const {
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

Result<std::string> ControlApi::stats(const ControlRequest& request) const {
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

void ControlApi::stats_files(const ControlRequest& request, std::shared_ptr<ControlAnswer> answer) {
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
