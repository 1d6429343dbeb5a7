#include "chunkstore/format/object_prefix.h"

#include <fmt/format.h>

#include "base/check.h"

namespace varve::chunkstore {
namespace {

constexpr uint32_t kKnownIncompat = 0;  // no feature has been defined yet

std::string bit_list(uint32_t bits) {
  std::string text;
  for (int bit = 0; bit < 32; ++bit) {
    if ((bits >> bit & 1) == 0) continue;
    if (!text.empty()) text += ", ";
    text += std::to_string(bit);
  }
  return text;
}

}  // namespace

void append_object_prefix(Bytes& to, std::string_view magic) {
  VARVE_CHECK_OP(magic.size(), ==, 8u);
  append(to, as_bytes(magic));
  append_le<uint32_t>(to, kFormatVersion);
  append_le<uint32_t>(to, 0);
  append_le<uint32_t>(to, 0);
}

Status check_object_prefix(ByteView bytes, std::string_view magic) {
  VARVE_CHECK_OP(bytes.size(), >=, kObjectPrefixBytes);
  if (as_text(bytes.first(8)) != magic) {
    return fail(ErrorCode::kCorruption,
                fmt::format("magic is {}, not {}", quoted(as_text(bytes.first(8))), quoted(magic)));
  }
  const auto version = load_le<uint32_t>(bytes.data() + 8);
  if (version != kFormatVersion) {
    return fail(
        ErrorCode::kUnsupported,
        fmt::format("format version {} is not known to this program, which reads version {}",
                    version, kFormatVersion));
  }
  const uint32_t unknown = load_le<uint32_t>(bytes.data() + 16) & ~kKnownIncompat;
  if (unknown != 0) {
    return fail(ErrorCode::kUnsupported, "needs incompatible feature bits " + bit_list(unknown) +
                                             ", which this program does not know");
  }
  return {};
}

}  // namespace varve::chunkstore
