#include "chunkstore/format/ref.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/bytes.h"
#include "base/hash.h"

namespace varve::chunkstore {
namespace {

bool is_name_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

bool is_tag_char(char c) {
  return is_name_char(c) || (c >= 'A' && c <= 'Z') || c == '_' || c == '.' || c == '-';
}

bool is_separator(std::string_view text) {
  return text == "." || text == "_" || text == "__" ||
         std::ranges::all_of(text, [](char c) { return c == '-'; });
}

bool is_component(std::string_view text) {
  if (text.empty() || !is_name_char(text.front()) || !is_name_char(text.back())) return false;
  for (size_t at = 0; at < text.size();) {
    if (is_name_char(text[at])) {
      ++at;
      continue;
    }
    size_t end = at;
    while (!is_name_char(text[end])) ++end;  // the last byte is a name character
    if (!is_separator(text.substr(at, end - at))) return false;
    at = end;
  }
  return true;
}

}  // namespace

Result<RefName> parse_ref(std::string_view text) {
  const auto invalid = [&](std::string_view rule) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} is not an image name: {}", quoted(text.substr(0, 512)), rule));
  };
  const size_t colon = text.find(':');
  const std::string_view name = text.substr(0, colon);
  const std::string_view tag =
      colon == std::string_view::npos ? kRefTagDefault : text.substr(colon + 1);
  if (name.empty() || name.size() > kRefNameBytesMax) {
    return invalid(fmt::format("a name has 1 to {} bytes", kRefNameBytesMax));
  }
  if (Digest::from_hex(name)) return invalid("64 hexadecimal digits are an id");
  for (size_t at = 0; at <= name.size();) {
    const size_t end = std::min(name.find('/', at), name.size());
    if (!is_component(name.substr(at, end - at))) {
      return invalid(
          "the parts between '/' are lower-case letters and digits, with '.', '_', '__' or "
          "'-' inside");
    }
    at = end + 1;
  }
  if (tag.empty() || tag.size() > kRefTagBytesMax || tag.front() == '.' || tag.front() == '-' ||
      !std::ranges::all_of(tag, is_tag_char)) {
    return invalid(
        fmt::format("a tag is 1 to {} letters, digits, '_', '.' or '-', and does not begin "
                    "with '.' or '-'",
                    kRefTagBytesMax));
  }
  return RefName{std::string(name), std::string(tag)};
}

}  // namespace varve::chunkstore
