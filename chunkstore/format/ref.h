#pragma once

#include <compare>
#include <string>
#include <string_view>

#include "base/error.h"

/// Names of images, `name:tag`. Defined by varve-store(5), section REFS.
namespace varve::chunkstore {

inline constexpr size_t kRefNameBytesMax = 255;
inline constexpr size_t kRefTagBytesMax = 128;
inline constexpr std::string_view kRefTagDefault = "latest";

/// A valid name and tag. Value type.
struct RefName {
  std::string name;
  std::string tag;

  auto operator<=>(const RefName&) const = default;
  std::string to_string() const { return name + ":" + tag; }
};

/// Parses `name[:tag]`; the tag defaults to "latest".
///
/// A name is one or more components separated by '/', each [a-z0-9]+ runs separated by one '.', one
/// or two '_', or any number of '-'; at most kRefNameBytesMax bytes, and not 64 hexadecimal digits
/// (that is an id). A tag is [A-Za-z0-9_][A-Za-z0-9._-]*, at most kRefTagBytesMax bytes. Errors:
/// kInvalidArgument, naming the text and the rule.
Result<RefName> parse_ref(std::string_view text);

}  // namespace varve::chunkstore
