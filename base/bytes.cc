#include "base/bytes.h"

#include <cstdio>

namespace varve {

std::string human_bytes(uint64_t bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit < 6) {
    value /= 1024;
    ++unit;
  }
  char text[32];
  std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.1f %s", value, kUnits[unit]);
  return text;
}

namespace {

/// Length of the well-formed UTF-8 sequence at the start of `text`, 0 when there is none (RFC
/// 3629).
size_t utf8_length(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t first = byte(0);
  size_t length = first < 0x80 ? 1 : first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : first >= 0xc2 ? 2 : 0;
  if (length == 0 || first > 0xf4 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  if (first == 0xe0 && byte(1) < 0xa0) return 0;
  if (first == 0xed && byte(1) > 0x9f) return 0;
  if (first == 0xf0 && byte(1) < 0x90) return 0;
  if (first == 0xf4 && byte(1) > 0x8f) return 0;
  return length;
}

}  // namespace

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const size_t length = utf8_length(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

std::string quoted(std::string_view text) {
  std::string out = "'";
  while (!text.empty()) {
    const size_t length = utf8_length(text);
    const auto first = static_cast<uint8_t>(text[0]);
    // C1 controls (U+0080..U+009F) act on terminals as C0 controls do.
    const bool c1 = length == 2 && first == 0xc2 && static_cast<uint8_t>(text[1]) < 0xa0;
    if (length == 0 || c1 || first < 0x20 || first == 0x7f || first == '\'' || first == '\\') {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\x%02x", first);
      out += escape;
      text.remove_prefix(1);
    } else {
      out += text.substr(0, length);
      text.remove_prefix(length);
    }
  }
  return out + "'";
}

}  // namespace varve
