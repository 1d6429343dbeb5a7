#include "launcher/json_text.h"

#include <boost/json.hpp>

namespace varve::launcher {
namespace {

namespace json = boost::json;

tl::unexpected<Error> bad_member(const char* name) {
  return fail(ErrorCode::kCorruption,
              std::string("varvefs sent a malformed answer: member '") + name + "'");
}

Status read_string(const json::object& object, const char* name, std::string& to) {
  const json::value* value = object.if_contains(name);
  if (value == nullptr || value->is_null()) return {};
  if (!value->is_string()) return bad_member(name);
  to = value->get_string().c_str();
  return {};
}

Status read_number(const json::object& object, const char* name, uint64_t& to) {
  const json::value* value = object.if_contains(name);
  if (value == nullptr || value->is_null()) return {};
  boost::system::error_code error;
  to = value->to_number<uint64_t>(error);
  if (error) return bad_member(name);
  return {};
}

Status read_strings(const json::object& object, const char* name, std::vector<std::string>& to) {
  const json::value* value = object.if_contains(name);
  if (value == nullptr || value->is_null()) return {};
  if (!value->is_array()) return bad_member(name);
  for (const json::value& element : value->get_array()) {
    if (!element.is_string()) return bad_member(name);
    to.emplace_back(element.get_string().c_str());
  }
  return {};
}

Status read_config(const json::object& object, ImageConfig& config) {
  VARVE_TRY(read_strings(object, "env", config.env));
  VARVE_TRY(read_strings(object, "entrypoint", config.entrypoint));
  VARVE_TRY(read_strings(object, "cmd", config.command));
  VARVE_TRY(read_string(object, "cwd", config.workdir));
  return read_string(object, "user", config.user);
}

Result<LayerInfo> read_layer(const json::value& value) {
  if (!value.is_object()) return bad_member("layers");
  LayerInfo layer;
  VARVE_TRY(read_string(value.get_object(), "id", layer.id));
  VARVE_TRY(read_string(value.get_object(), "path", layer.path));
  VARVE_TRY(read_string(value.get_object(), "tree", layer.tree));
  VARVE_TRY(read_number(value.get_object(), "image_bytes", layer.image_bytes));
  VARVE_TRY(read_number(value.get_object(), "stored_bytes", layer.stored_bytes));
  if (layer.id.empty()) return bad_member("id");
  return layer;
}

}  // namespace

std::string to_json(const AttachRequest& request) {
  json::object object;
  object["store"] = request.store;
  object["image"] = request.image;
  object["layers"] = json::array(request.layers.begin(), request.layers.end());
  object["domain"] = request.domain;
  if (request.mounts) object["mounts"] = true;
  if (request.keep) object["keep"] = true;
  return json::serialize(object);
}

std::string detach_json(const std::string& lease) {
  return json::serialize(json::object{{"lease", lease}});
}

std::string keep_namespace_json(const std::string& name) {
  return json::serialize(json::object{{"name", name}});
}

Result<ImageInfo> parse_image_info(std::string_view text) {
  boost::system::error_code error;
  const json::value document = json::parse(text, error);
  if (error || !document.is_object()) {
    return fail(ErrorCode::kCorruption, "varvefs sent a malformed answer: not a JSON object");
  }
  const json::object& object = document.get_object();
  ImageInfo info;
  VARVE_TRY(read_string(object, "image", info.id));
  VARVE_TRY(read_string(object, "lease", info.lease));
  if (const json::value* config = object.if_contains("config"); config != nullptr) {
    if (!config->is_object()) return bad_member("config");
    VARVE_TRY(read_config(config->get_object(), info.config));
  }
  if (const json::value* ids = object.if_contains("ids"); ids != nullptr) {
    if (!ids->is_array()) return bad_member("ids");
    for (const json::value& id : ids->get_array()) {
      info.large_ids.push_back(id.to_number<uint32_t>(error));
      if (error) return bad_member("ids");
    }
  }
  const json::value* layers = object.if_contains("layers");
  if (layers == nullptr || !layers->is_array()) return bad_member("layers");
  for (const json::value& value : layers->get_array()) {
    VARVE_ASSIGN(LayerInfo layer, read_layer(value));
    info.layers.push_back(std::move(layer));
  }
  return info;
}

ErrorText parse_error_text(std::string_view text) {
  boost::system::error_code error;
  const json::value document = json::parse(text, error);
  ErrorText result;
  if (error || !document.is_object()) return result;
  const json::value* inner = document.get_object().if_contains("error");
  if (inner == nullptr || !inner->is_object()) return result;
  (void)read_string(inner->get_object(), "code", result.code);
  (void)read_string(inner->get_object(), "message", result.message);
  return result;
}

}  // namespace varve::launcher
