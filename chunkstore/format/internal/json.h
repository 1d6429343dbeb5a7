#pragma once

#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"
#include "base/hash.h"

/// Canonical JSON, the form of every text object of a store (varve-store(5), CANONICAL JSON): keys
/// sorted by their bytes, no spaces, one spelling for each string, integers only. Private to
/// chunkstore/format: the header is heavy.
namespace varve::chunkstore {

inline constexpr size_t kJsonDepthMax = 8;

/// The canonical text of `value`, without a final newline. No doubles in it (programmer error).
std::string canonical_json(const boost::json::value& value);

/// Parses an object that must be canonical. Errors: kCorruption (not JSON, too deep, not
/// canonical).
Result<boost::json::object> parse_canonical_json(ByteView bytes, size_t bytes_max);

/// Checks `type`, `version` (1) and `incompat` (a list of feature names, of which none is known).
/// Errors: kCorruption, kUnsupported (newer version; features, by name).
Status check_json_type(const boost::json::object& object, std::string_view type);

/// Members of an object; all errors are kCorruption and name the key. An absent member is empty.
Result<std::string> get_string(const boost::json::object& object, std::string_view key);
Result<std::vector<std::string>> get_strings(const boost::json::object& object,
                                             std::string_view key, size_t count_max);
Result<std::map<std::string, std::string>> get_string_map(const boost::json::object& object,
                                                          std::string_view key, size_t count_max);
/// The member must be there.
Result<int64_t> get_integer(const boost::json::object& object, std::string_view key);
Result<Digest> to_digest(std::string_view text, std::string_view key);

/// Whether `text` is UTF-8 without NUL, as every string in canonical JSON is.
bool is_json_text(std::string_view text);

}  // namespace varve::chunkstore
