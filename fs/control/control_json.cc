#include "fs/control/control_json.h"

#include <algorithm>
#include <boost/json.hpp>

namespace varve::fs {
namespace {

namespace json = boost::json;

constexpr size_t kDomainBytesMax = 64;

Result<json::object> parse_object(const std::string& body) {
  boost::system::error_code error;
  json::value value = json::parse(body, error);
  if (error) return fail(ErrorCode::kInvalidArgument, "the body is no JSON: " + error.message());
  if (!value.is_object()) return fail(ErrorCode::kInvalidArgument, "the body is no JSON object");
  return std::move(value.as_object());
}

Status take_string(const json::object& object, const char* name, std::string& to) {
  const json::value* value = object.if_contains(name);
  if (value == nullptr) return {};
  if (!value->is_string()) {
    return fail(ErrorCode::kInvalidArgument, std::string("'") + name + "' is no string");
  }
  to = std::string(value->as_string());
  return {};
}

Status take_bool(const json::object& object, const char* name, bool& to) {
  const json::value* value = object.if_contains(name);
  if (value == nullptr) return {};
  if (!value->is_bool()) {
    return fail(ErrorCode::kInvalidArgument, std::string("'") + name + "' is no boolean");
  }
  to = value->as_bool();
  return {};
}

Status take_strings(const json::object& object, const char* name, std::vector<std::string>& to) {
  const json::value* value = object.if_contains(name);
  if (value == nullptr) return {};
  const auto wrong = [&] {
    return fail(ErrorCode::kInvalidArgument, std::string("'") + name + "' is no list of strings");
  };
  if (!value->is_array()) return wrong();
  for (const json::value& item : value->as_array()) {
    if (!item.is_string()) return wrong();
    to.emplace_back(item.as_string());
  }
  return {};
}

Status refuse_unknown(const json::object& object, std::initializer_list<std::string_view> known) {
  for (const auto& member : object) {
    const std::string_view name(member.key().data(), member.key().size());
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      return fail(ErrorCode::kInvalidArgument, "unknown member " + quoted(name));
    }
  }
  return {};
}

// A domain is one directory name.
Status check_domain(const std::string& domain) {
  const auto is_allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.';
  };
  if (domain.empty() || domain.size() > kDomainBytesMax || domain.front() == '.' ||
      !std::all_of(domain.begin(), domain.end(), is_allowed)) {
    return fail(ErrorCode::kInvalidArgument,
                "domain " + quoted(domain) +
                    " is not 1 to 64 letters, digits, '-', '_' or '.', the first no '.'");
  }
  return {};
}

json::array strings(const std::vector<std::string>& from) {
  json::array array;
  for (const std::string& text : from) array.emplace_back(text);
  return array;
}

json::object config_json(const chunkstore::ImageConfig& config) {
  json::object labels;
  for (const auto& [name, value] : config.labels) labels[name] = value;
  json::object object;
  object["env"] = strings(config.env);
  object["cwd"] = config.cwd;
  object["user"] = config.user;
  object["entrypoint"] = strings(config.entrypoint);
  object["cmd"] = strings(config.cmd);
  object["stop_signal"] = config.stop_signal;
  object["labels"] = std::move(labels);
  return object;
}

json::object layer_json(const LayerView& view, const std::string& mountpoint) {
  const AttachedLayer& layer = *view.layer;
  const std::string id = layer.id().hex();
  const std::string directory = mountpoint + "/" + view.domain + "/" + id;
  json::object object;
  object["id"] = id;
  object["domain"] = view.domain;
  object["path"] = directory + "/image.erofs";
  object["tree"] = directory + "/tree";
  object["image_bytes"] = layer.image_bytes();
  object["stored_bytes"] = layer.stored_bytes();
  object["metadata_bytes"] = layer.metadata_bytes();
  return object;
}

// Names of the counters, in the entries and in the sum.
json::object counters_json(const LayerStats& stats) {
  json::object object;
  object["touched_bytes"] = stats.touched.count() * TouchedPages::kPageBytes;
  object["fetched_bytes"] = stats.fetched_bytes.load();
  object["fetched_chunks"] = stats.fetched_chunks.load();
  object["range_reads"] = stats.range_reads.load();
  object["read_requests"] = stats.read_requests.load();
  object["read_bytes"] = stats.read_bytes.load();
  object["memory_hits"] = stats.memory_hits.load();
  object["failed_reads"] = stats.failed_reads.load();
  object["ahead_chunks"] = stats.ahead->chunks.load();
  object["ahead_chunks_used"] = stats.ahead->used.load();
  object["ahead_chunks_wasted"] = stats.ahead->wasted.load();
  return object;
}

}  // namespace

Result<AttachRequest> parse_attach_request(const std::string& body) {
  VARVE_ASSIGN(const json::object object, parse_object(body));
  VARVE_TRY(refuse_unknown(object, {"store", "image", "layers", "domain", "mounts", "keep"}));
  AttachRequest request;
  VARVE_TRY(take_string(object, "store", request.store));
  VARVE_TRY(take_string(object, "image", request.image));
  VARVE_TRY(take_strings(object, "layers", request.layers));
  VARVE_TRY(take_string(object, "domain", request.domain));
  VARVE_TRY(take_bool(object, "mounts", request.wants_mounts));
  VARVE_TRY(take_bool(object, "keep", request.keeps));
  if (request.store.empty()) return fail(ErrorCode::kInvalidArgument, "'store' is missing");
  if (request.image.empty() && request.layers.empty()) {
    return fail(ErrorCode::kInvalidArgument, "neither 'image' nor 'layers' is given");
  }
  if (request.layers.size() > chunkstore::kImageLayerCountMax) {
    return fail(ErrorCode::kInvalidArgument, "too many layers");
  }
  VARVE_TRY(check_domain(request.domain));
  return request;
}

Result<std::string> parse_detach_request(const std::string& body) {
  VARVE_ASSIGN(const json::object object, parse_object(body));
  VARVE_TRY(refuse_unknown(object, {"lease"}));
  std::string lease;
  VARVE_TRY(take_string(object, "lease", lease));
  if (lease.empty()) return fail(ErrorCode::kInvalidArgument, "'lease' is missing");
  return lease;
}

Result<std::string> parse_namespace_request(const std::string& body) {
  VARVE_ASSIGN(const json::object object, parse_object(body));
  VARVE_TRY(refuse_unknown(object, {"name"}));
  std::string name;
  VARVE_TRY(take_string(object, "name", name));
  return name;
}

std::string attachment_json(const Attachment& attachment, const std::string& mountpoint) {
  json::array layers;
  for (const auto& view : attachment.views) layers.push_back(layer_json(*view, mountpoint));
  json::array ids;
  for (const uint32_t id : attachment.ids) ids.emplace_back(id);
  json::object object;
  object["image"] = attachment.image_id == Digest{} ? json::value(nullptr)
                                                    : json::value(attachment.image_id.hex());
  object["config"] = config_json(attachment.image.config);
  object["ids"] = std::move(ids);
  object["layers"] = std::move(layers);
  object["lease"] = attachment.lease;
  object["mounts"] = attachment.mounts.size();
  return json::serialize(object);
}

std::string layers_json(const std::vector<std::shared_ptr<LayerView>>& views,
                        const std::string& mountpoint) {
  json::array layers;
  for (const auto& view : views) layers.push_back(layer_json(*view, mountpoint));
  return json::serialize(json::object{{"layers", std::move(layers)}});
}

std::string stats_json(const std::vector<std::shared_ptr<AttachedLayer>>& layers) {
  json::array entries;
  json::object total;
  for (const auto& layer : layers) {
    json::object entry = counters_json(layer->stats());
    for (const auto& member : entry) {
      uint64_t sum = member.value().to_number<uint64_t>();
      if (const json::value* before = total.if_contains(member.key())) {
        sum += before->to_number<uint64_t>();
      }
      total[member.key()] = sum;
    }
    entry["id"] = layer->id().hex();
    entry["image_bytes"] = layer->image_bytes();
    entry["stored_bytes"] = layer->stored_bytes();
    entries.push_back(std::move(entry));
  }
  return json::serialize(json::object{{"layers", std::move(entries)}, {"total", std::move(total)}});
}

std::string touched_files_json(const Digest& layer, const TouchedFiles& files) {
  json::array entries;
  for (const TouchedFile& file : files.files) {
    json::object entry;
    // JSON has no other text than UTF-8; other names are shown quoted, and marked.
    const bool as_is = is_utf8(file.path);
    entry["path"] = as_is ? file.path : quoted(file.path);
    if (!as_is) entry["quoted"] = true;
    entry["size"] = file.size;
    entry["touched_bytes"] = file.touched_bytes;
    entries.push_back(std::move(entry));
  }
  json::object object;
  object["layer"] = layer.hex();
  object["files"] = std::move(entries);
  object["metadata_bytes"] = files.metadata_bytes;
  object["other_bytes"] = files.other_bytes;
  return json::serialize(object);
}

std::string error_json(const Error& error) {
  json::object inner;
  inner["code"] = error_code_name(error.code());
  inner["message"] = error.to_string();
  return json::serialize(json::object{{"error", std::move(inner)}});
}

std::string status_json(const StatusFigures& figures) {
  json::object object;
  object["pid"] = figures.pid;
  object["version"] = figures.version;
  object["mountpoint"] = figures.mountpoint;
  object["transport"] = figures.transport;
  object["transport_fallback"] = figures.transport_fallback;
  object["domains"] = strings(figures.domains);
  object["uptime_ms"] = figures.uptime_ms;
  object["attachments"] = figures.attachment_count;
  object["layers"] = figures.layer_count;
  object["views"] = figures.view_count;
  object["pending_reads"] = figures.pending_read_count;
  object["oldest_read_ms"] = figures.oldest_read_ms;
  object["cache_bytes"] = figures.cache_bytes;
  object["cache_bytes_max"] = figures.cache_bytes_max;
  return json::serialize(object);
}

}  // namespace varve::fs
