#include "chunkstore/format/image.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>

#include "chunkstore/format/internal/json.h"
#include "chunkstore/format/object_prefix.h"

namespace varve::chunkstore {
namespace {

namespace json = boost::json;

constexpr std::string_view kImageType = "varve.image";

json::array to_array(const std::vector<std::string>& strings) {
  json::array array;
  for (const std::string& text : strings) array.emplace_back(text);
  return array;
}

json::object to_object(const std::map<std::string, std::string>& map) {
  json::object object;
  for (const auto& [key, value] : map) object.emplace(key, value);
  return object;
}

json::object config_to_json(const ImageConfig& config) {
  json::object object;
  if (!config.cmd.empty()) object.emplace("Cmd", to_array(config.cmd));
  if (!config.entrypoint.empty()) object.emplace("Entrypoint", to_array(config.entrypoint));
  if (!config.env.empty()) object.emplace("Env", to_array(config.env));
  if (!config.labels.empty()) object.emplace("Labels", to_object(config.labels));
  if (!config.stop_signal.empty()) object.emplace("StopSignal", config.stop_signal);
  if (!config.user.empty()) object.emplace("User", config.user);
  if (!config.cwd.empty()) object.emplace("WorkingDir", config.cwd);
  return object;
}

Result<ImageConfig> config_from_json(const json::object& object) {
  ImageConfig config;
  VARVE_ASSIGN(config.cmd, get_strings(object, "Cmd", kImageListCountMax));
  VARVE_ASSIGN(config.entrypoint, get_strings(object, "Entrypoint", kImageListCountMax));
  VARVE_ASSIGN(config.env, get_strings(object, "Env", kImageListCountMax));
  VARVE_ASSIGN(config.labels, get_string_map(object, "Labels", kImageListCountMax));
  VARVE_ASSIGN(config.stop_signal, get_string(object, "StopSignal"));
  VARVE_ASSIGN(config.user, get_string(object, "User"));
  VARVE_ASSIGN(config.cwd, get_string(object, "WorkingDir"));
  return config;
}

/// What holds for every image, read or to be written; the caller chooses the error code.
Status check_image(const Image& image, ErrorCode code) {
  if (image.layers.empty() || image.layers.size() > kImageLayerCountMax) {
    return fail(code, fmt::format("image has {} layers, not 1 … {}", image.layers.size(),
                                  kImageLayerCountMax));
  }
  if (image.ids.size() > kImageIdCountMax) {
    return fail(code, fmt::format("image lists {} user and group ids from {} on, more than the {} "
                                  "allowed",
                                  image.ids.size(), kLargeIdMin, kImageIdCountMax));
  }
  for (size_t i = 0; i < image.ids.size(); ++i) {
    if (image.ids[i] < kLargeIdMin || (i > 0 && image.ids[i] <= image.ids[i - 1])) {
      return fail(code, fmt::format("'ids' has {} at position {}: not sorted, or below {}",
                                    image.ids[i], i, kLargeIdMin));
    }
  }
  for (const std::string& entry : image.config.env) {
    if (entry.find('=') == std::string::npos || entry.front() == '=') {
      return fail(code, "environment entry " + quoted(entry) + " is not NAME=VALUE");
    }
  }
  return {};
}

Status check_text(const std::string& text, std::string_view what) {
  if (is_json_text(text)) return {};
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("{} {} is not UTF-8 without NUL", what, quoted(text)));
}

Status check_texts(const Image& image) {
  const ImageConfig& config = image.config;
  for (const std::string& text : config.env) VARVE_TRY(check_text(text, "environment entry"));
  for (const std::string& text : config.entrypoint) VARVE_TRY(check_text(text, "entrypoint"));
  for (const std::string& text : config.cmd) VARVE_TRY(check_text(text, "command argument"));
  VARVE_TRY(check_text(config.cwd, "working directory"));
  VARVE_TRY(check_text(config.user, "user"));
  VARVE_TRY(check_text(config.stop_signal, "stop signal"));
  for (const auto* map : {&config.labels, &image.annotations}) {
    for (const auto& [key, value] : *map) {
      VARVE_TRY(check_text(key, "label or annotation"));
      VARVE_TRY(check_text(value, "label or annotation"));
    }
  }
  for (const size_t count : {config.env.size(), config.entrypoint.size(), config.cmd.size(),
                             config.labels.size(), image.annotations.size()}) {
    if (count > kImageListCountMax) {
      return fail(
          ErrorCode::kInvalidArgument,
          fmt::format("a list of the image config has {} elements, more than the {} allowed", count,
                      kImageListCountMax));
    }
  }
  return {};
}

}  // namespace

Result<Bytes> encode_image(const Image& image) {
  VARVE_TRY(check_image(image, ErrorCode::kInvalidArgument));
  VARVE_TRY(check_texts(image));
  json::object object;
  if (!image.annotations.empty()) object.emplace("annotations", to_object(image.annotations));
  object.emplace("config", config_to_json(image.config));
  json::array ids;
  for (const uint32_t id : image.ids) ids.emplace_back(id);
  object.emplace("ids", std::move(ids));
  json::array layers;
  for (const Digest& layer : image.layers) layers.emplace_back(layer.hex());
  object.emplace("layers", std::move(layers));
  object.emplace("type", kImageType);
  object.emplace("version", kFormatVersion);
  const std::string text = canonical_json(std::move(object));
  if (text.size() > kImageJsonBytesMax) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("image has {} bytes of configuration, more than the {} allowed",
                            text.size(), kImageJsonBytesMax));
  }
  return Bytes(text.begin(), text.end());
}

Result<Image> parse_image(ByteView bytes) {
  VARVE_ASSIGN(const json::object object, parse_canonical_json(bytes, kImageJsonBytesMax));
  VARVE_TRY(check_json_type(object, kImageType));
  Image image;
  VARVE_ASSIGN(const auto layers, get_strings(object, "layers", kImageLayerCountMax));
  for (const std::string& text : layers) {
    VARVE_ASSIGN(const Digest layer, to_digest(text, "layers"));
    image.layers.push_back(layer);
  }
  const json::value* config = object.if_contains("config");
  if (config == nullptr || !config->is_object()) {
    return fail(ErrorCode::kCorruption, "'config' is not an object");
  }
  VARVE_ASSIGN(image.config, config_from_json(config->get_object()));
  const json::value* ids = object.if_contains("ids");
  if (ids == nullptr || !ids->is_array())
    return fail(ErrorCode::kCorruption, "'ids' is not a list");
  for (const json::value& id : ids->get_array()) {
    if (!id.is_int64() || id.get_int64() < 0 || id.get_int64() > UINT32_MAX) {
      return fail(ErrorCode::kCorruption, "'ids' has an element that is not a 32-bit id");
    }
    image.ids.push_back(static_cast<uint32_t>(id.get_int64()));
  }
  VARVE_ASSIGN(image.annotations, get_string_map(object, "annotations", kImageListCountMax));
  VARVE_TRY(check_image(image, ErrorCode::kCorruption));
  return image;
}

}  // namespace varve::chunkstore
