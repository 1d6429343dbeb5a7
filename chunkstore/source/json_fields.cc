#include "chunkstore/source/json_fields.h"

namespace varve::chunkstore::json_fields {
namespace {

namespace json = boost::json;

tl::unexpected<Error> wrong(std::string_view name, const char* expected) {
  return fail(ErrorCode::kInvalidArgument,
              "JSON member " + varve::quoted(name) + " is not " + expected);
}

/// The member, or nullptr when it is absent or null.
const json::value* find(const Object& object, std::string_view name) {
  const json::value* const value = object.if_contains(name);
  return value == nullptr || value->is_null() ? nullptr : value;
}

Result<json::value> parse(ByteView text) {
  json::error_code error;
  json::value value = json::parse(as_text(text), error);
  if (error) return fail(ErrorCode::kInvalidArgument, "not JSON: " + error.message());
  return value;
}

Result<std::string> to_string(const json::value& value, std::string_view name) {
  if (!value.is_string()) return wrong(name, "a string");
  return std::string(value.get_string());
}

}  // namespace

Result<Object> parse_object(ByteView text) {
  VARVE_ASSIGN(const json::value value, parse(text));
  return to_object(value, "(whole text)");
}

Result<json::array> parse_array(ByteView text) {
  VARVE_ASSIGN(const json::value value, parse(text));
  if (!value.is_array()) return wrong("(whole text)", "an array");
  return value.get_array();
}

Result<Object> to_object(const json::value& value, std::string_view name) {
  if (!value.is_object()) return wrong(name, "an object");
  return value.get_object();
}

Result<std::string> get_string(const Object& object, std::string_view name) {
  const json::value* const value = find(object, name);
  if (value == nullptr) return std::string();
  return to_string(*value, name);
}

Result<uint64_t> get_natural(const Object& object, std::string_view name) {
  const json::value* const value = find(object, name);
  if (value == nullptr) return uint64_t{0};
  json::error_code error;
  const auto number = value->to_number<uint64_t>(error);
  if (error) return wrong(name, "a whole number from 0 on");
  return number;
}

Result<Object> get_object(const Object& object, std::string_view name) {
  const json::value* const value = find(object, name);
  if (value == nullptr) return Object();
  return to_object(*value, name);
}

Result<std::vector<Object>> get_objects(const Object& object, std::string_view name) {
  std::vector<Object> objects;
  const json::value* const value = find(object, name);
  if (value == nullptr) return objects;
  if (!value->is_array()) return wrong(name, "an array");
  for (const json::value& item : value->get_array()) {
    VARVE_ASSIGN(Object one, to_object(item, name));
    objects.push_back(std::move(one));
  }
  return objects;
}

Result<std::vector<std::string>> get_strings(const Object& object, std::string_view name) {
  std::vector<std::string> strings;
  const json::value* const value = find(object, name);
  if (value == nullptr) return strings;
  if (!value->is_array()) return wrong(name, "an array of strings");
  for (const json::value& item : value->get_array()) {
    VARVE_ASSIGN(std::string one, to_string(item, name));
    strings.push_back(std::move(one));
  }
  return strings;
}

Result<std::map<std::string, std::string>> get_string_map(const Object& object,
                                                          std::string_view name) {
  std::map<std::string, std::string> strings;
  VARVE_ASSIGN(const Object map, get_object(object, name));
  for (const auto& member : map) {
    VARVE_ASSIGN(std::string value, to_string(member.value(), name));
    strings.emplace(member.key(), std::move(value));
  }
  return strings;
}

}  // namespace varve::chunkstore::json_fields
