#include "launcher/run_stats.h"

#include <boost/json.hpp>

namespace varve::launcher {
namespace {

namespace json = boost::json;

Result<json::object> get(ControlClient& client, const std::string& path) {
  VARVE_TRY(client.send("GET", path, ""));
  VARVE_ASSIGN(const ControlClient::Response response, client.receive());
  boost::system::error_code error;
  json::value document = json::parse(response.body, error);
  if (error || !document.is_object()) {
    return fail(ErrorCode::kCorruption, "varvefs sent a malformed answer to " + quoted(path));
  }
  return std::move(document.get_object());
}

Result<uint64_t> number(const json::object& object, const char* name) {
  const json::value* value = object.if_contains(name);
  boost::system::error_code error;
  const uint64_t result = value != nullptr ? value->to_number<uint64_t>(error) : 0;
  if (value == nullptr || error) {
    return fail(ErrorCode::kCorruption, std::string("varvefs sent no number '") + name + "'");
  }
  return result;
}

template <class T>
json::value or_null(const std::optional<T>& value) {
  return value ? json::value(*value) : json::value(nullptr);
}

}  // namespace

Result<RunStats::CountersByLayer> RunStats::read_counters(ControlClient& client) {
  VARVE_ASSIGN(const json::object document, get(client, "/v1/stats"));
  const json::value* layers = document.if_contains("layers");
  if (layers == nullptr || !layers->is_array()) {
    return fail(ErrorCode::kCorruption, "varvefs sent no counters");
  }
  CountersByLayer result;
  for (const json::value& value : layers->get_array()) {
    const json::object* entry = value.if_object();
    const json::value* id = entry != nullptr ? entry->if_contains("id") : nullptr;
    if (id == nullptr || !id->is_string()) {
      return fail(ErrorCode::kCorruption, "varvefs sent counters of no layer");
    }
    Counters& counters = result[std::string(id->get_string())];
    VARVE_ASSIGN(counters.touched_bytes, number(*entry, "touched_bytes"));
    VARVE_ASSIGN(counters.fetched_bytes, number(*entry, "fetched_bytes"));
  }
  return result;
}

Status RunStats::begin(ControlClient& client) {
  VARVE_ASSIGN(before_, read_counters(client));
  return {};
}

Result<std::string> RunStats::finish(ControlClient& client, const ImageInfo& image,
                                     const Times& times, const qos::CgroupUsage& usage,
                                     int exit_status) const {
  uint64_t image_bytes = 0, stored_bytes = 0, touched_bytes = 0, fetched_bytes = 0;
  json::array layers;
  VARVE_ASSIGN(const CountersByLayer after, read_counters(client));
  for (const LayerInfo& layer : image.layers) {
    const auto now = after.find(layer.id);
    if (now == after.end()) {
      return fail(ErrorCode::kCorruption, "varvefs sent no counters of layer " + quoted(layer.id));
    }
    Counters run = now->second;
    if (const auto earlier = before_.find(layer.id); earlier != before_.end()) {
      run.touched_bytes -= earlier->second.touched_bytes;
      run.fetched_bytes -= earlier->second.fetched_bytes;
    }
    json::object entry;
    entry["id"] = layer.id;
    entry["image_bytes"] = layer.image_bytes;
    entry["stored_bytes"] = layer.stored_bytes;
    entry["touched_bytes"] = run.touched_bytes;
    entry["fetched_bytes"] = run.fetched_bytes;
    // Which files the pages belong to that were ever touched, as varvefs tells them apart.
    VARVE_ASSIGN(json::object files, get(client, "/v1/stats/files?layer=" + layer.id));
    entry["files"] = std::move(files["files"]);
    image_bytes += layer.image_bytes;
    stored_bytes += layer.stored_bytes;
    touched_bytes += run.touched_bytes;
    fetched_bytes += run.fetched_bytes;
    layers.push_back(std::move(entry));
  }
  const auto milliseconds = [&](uint64_t ns) {
    return ns == 0 ? json::value(nullptr)
                   : json::value(static_cast<double>(ns - times.start_ns) / 1e6);
  };
  json::object document;
  document["image"] = image.id;
  document["image_bytes"] = image_bytes;
  document["stored_bytes"] = stored_bytes;
  document["touched_bytes"] = touched_bytes;
  document["fetched_bytes"] = fetched_bytes;
  document["ready_ms"] = milliseconds(times.ready_ns);
  document["exit_ms"] = milliseconds(times.exit_ns);
  document["exit_status"] = exit_status;
  document["memory_peak_bytes"] = or_null(usage.memory_peak_bytes);
  document["cpu_usec"] = or_null(usage.cpu_usec);
  document["oom_kills"] = or_null(usage.oom_kill_count);
  document["layers"] = std::move(layers);
  return json::serialize(document) + "\n";
}

}  // namespace varve::launcher
