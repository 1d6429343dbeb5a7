#pragma once

#include <boost/json.hpp>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"

/// Reading members of JSON that was written by anyone. An absent or null member is the empty value;
/// one of another type is kInvalidArgument naming the member. For .cc files only (heavy header).
namespace varve::chunkstore::json_fields {

using Object = boost::json::object;

/// Parses UTF-8 text whose outermost value is an object (nesting at most 32 deep).
Result<Object> parse_object(ByteView text);
Result<boost::json::array> parse_array(ByteView text);

Result<std::string> get_string(const Object& object, std::string_view name);
Result<uint64_t> get_natural(const Object& object, std::string_view name);
Result<Object> get_object(const Object& object, std::string_view name);
Result<std::vector<Object>> get_objects(const Object& object, std::string_view name);
Result<std::vector<std::string>> get_strings(const Object& object, std::string_view name);
Result<std::map<std::string, std::string>> get_string_map(const Object& object,
                                                          std::string_view name);

/// `value` as an object; `name` is for the message.
Result<Object> to_object(const boost::json::value& value, std::string_view name);

}  // namespace varve::chunkstore::json_fields
