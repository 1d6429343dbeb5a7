#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>

#include "base/check.h"
#include "chunkstore/format/internal/json.h"
#include "chunkstore/format/object_prefix.h"

namespace varve::chunkstore {
namespace {

namespace json = boost::json;

tl::unexpected<Error> corrupt(std::string message) {
  return fail(ErrorCode::kCorruption, std::move(message));
}

void append_string(std::string& to, std::string_view text) {
  to += '"';
  for (const char c : text) {
    switch (c) {
      case '"':
        to += "\\\"";
        break;
      case '\\':
        to += "\\\\";
        break;
      case '\b':
        to += "\\b";
        break;
      case '\f':
        to += "\\f";
        break;
      case '\n':
        to += "\\n";
        break;
      case '\r':
        to += "\\r";
        break;
      case '\t':
        to += "\\t";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          to += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
        } else {
          to += c;
        }
    }
  }
  to += '"';
}

// Depth is bounded by the parser for input and by the callers' own structure for output.
void append_value(std::string& to, const json::value& value) {
  switch (value.kind()) {
    case json::kind::null:
      to += "null";
      break;
    case json::kind::bool_:
      to += value.get_bool() ? "true" : "false";
      break;
    case json::kind::int64:
      to += std::to_string(value.get_int64());
      break;
    case json::kind::uint64:
      to += std::to_string(value.get_uint64());
      break;
    case json::kind::double_:
      VARVE_CHECK(!"canonical JSON has no doubles");
      break;
    case json::kind::string:
      append_string(to, value.get_string());
      break;
    case json::kind::array: {
      to += '[';
      bool first = true;
      for (const json::value& element : value.get_array()) {
        if (!first) to += ',';
        first = false;
        append_value(to, element);
      }
      to += ']';
      break;
    }
    case json::kind::object: {
      std::map<std::string_view, const json::value*> sorted;
      for (const json::key_value_pair& member : value.get_object()) {
        sorted.emplace(member.key(), &member.value());
      }
      to += '{';
      bool first = true;
      for (const auto& [key, member] : sorted) {
        if (!first) to += ',';
        first = false;
        append_string(to, key);
        to += ':';
        append_value(to, *member);
      }
      to += '}';
      break;
    }
  }
}

bool contains_double(const json::value& value) {
  if (value.is_double()) return true;
  if (value.is_array()) return std::ranges::any_of(value.get_array(), contains_double);
  if (value.is_object()) {
    return std::ranges::any_of(value.get_object(),
                               [](const auto& member) { return contains_double(member.value()); });
  }
  return false;
}

}  // namespace

std::string canonical_json(const json::value& value) {
  std::string text;
  append_value(text, value);
  return text;
}

Result<json::object> parse_canonical_json(ByteView bytes, size_t bytes_max) {
  if (bytes.size() > bytes_max) {
    return corrupt(
        fmt::format("{} bytes of JSON, more than the {} allowed", bytes.size(), bytes_max));
  }
  json::parse_options options;
  options.max_depth = kJsonDepthMax;
  boost::system::error_code error;
  json::value value = json::parse(json::string_view(as_text(bytes).data(), bytes.size()), error,
                                  json::storage_ptr(), options);
  if (error) return corrupt("not JSON: " + error.message());
  if (!value.is_object()) return corrupt("JSON, but not an object");
  if (contains_double(value)) return corrupt("JSON with a number that is not an integer");
  if (canonical_json(value) != as_text(bytes)) {
    return corrupt("JSON that is not canonical (key order, duplicate keys, spaces or escapes)");
  }
  return std::move(value.get_object());
}

Status check_json_type(const json::object& object, std::string_view type) {
  VARVE_ASSIGN(const std::string found, get_string(object, "type"));
  if (found != type) return corrupt(fmt::format("type is {}, not {}", quoted(found), quoted(type)));
  VARVE_ASSIGN(const int64_t version, get_integer(object, "version"));
  if (version != kFormatVersion) {
    return fail(
        ErrorCode::kUnsupported,
        fmt::format("format version {} is not known to this program, which reads version {}",
                    version, kFormatVersion));
  }
  VARVE_ASSIGN(const auto incompat, get_strings(object, "incompat", 32));
  if (!incompat.empty()) {
    std::string names;
    for (const std::string& name : incompat) names += (names.empty() ? "" : ", ") + quoted(name);
    return fail(ErrorCode::kUnsupported,
                "needs the incompatible features " + names + ", which this program does not know");
  }
  return {};
}

Result<std::string> get_string(const json::object& object, std::string_view key) {
  const json::value* value = object.if_contains(key);
  if (value == nullptr) return std::string();
  if (!value->is_string()) return corrupt(fmt::format("'{}' is not a string", key));
  std::string text(value->get_string());
  if (!is_json_text(text)) return corrupt(fmt::format("'{}' contains a NUL", key));
  return text;
}

Result<std::vector<std::string>> get_strings(const json::object& object, std::string_view key,
                                             size_t count_max) {
  std::vector<std::string> strings;
  const json::value* value = object.if_contains(key);
  if (value == nullptr) return strings;
  if (!value->is_array()) return corrupt(fmt::format("'{}' is not a list", key));
  if (value->get_array().size() > count_max) {
    return corrupt(fmt::format("'{}' has {} elements, more than the {} allowed", key,
                               value->get_array().size(), count_max));
  }
  for (const json::value& element : value->get_array()) {
    if (!element.is_string() || !is_json_text(element.get_string())) {
      return corrupt(fmt::format("'{}' has an element that is not a string", key));
    }
    strings.emplace_back(element.get_string());
  }
  return strings;
}

Result<std::map<std::string, std::string>> get_string_map(const json::object& object,
                                                          std::string_view key, size_t count_max) {
  std::map<std::string, std::string> map;
  const json::value* value = object.if_contains(key);
  if (value == nullptr) return map;
  if (!value->is_object()) return corrupt(fmt::format("'{}' is not an object", key));
  if (value->get_object().size() > count_max) {
    return corrupt(fmt::format("'{}' has {} members, more than the {} allowed", key,
                               value->get_object().size(), count_max));
  }
  for (const json::key_value_pair& member : value->get_object()) {
    if (!member.value().is_string() || !is_json_text(member.value().get_string()) ||
        !is_json_text(member.key())) {
      return corrupt(fmt::format("'{}' has a member that is not a string", key));
    }
    map.emplace(member.key(), std::string(member.value().get_string()));
  }
  return map;
}

Result<int64_t> get_integer(const json::object& object, std::string_view key) {
  const json::value* value = object.if_contains(key);
  if (value == nullptr || !value->is_int64()) {
    return corrupt(fmt::format("'{}' is not an integer", key));
  }
  return value->get_int64();
}

Result<Digest> to_digest(std::string_view text, std::string_view key) {
  if (auto digest = Digest::from_hex(text)) return *digest;
  return corrupt(fmt::format("'{}' has {}, which is not 64 hexadecimal digits", key,
                             quoted(text.substr(0, 80))));
}

bool is_json_text(std::string_view text) {
  return text.find('\0') == std::string_view::npos && is_utf8(text);
}

}  // namespace varve::chunkstore
