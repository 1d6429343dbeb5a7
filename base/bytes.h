#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace varve {

using Bytes = std::vector<uint8_t>;
using ByteView = std::span<const uint8_t>;
using MutableByteView = std::span<uint8_t>;

inline ByteView as_bytes(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}
inline std::string_view as_text(ByteView bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// Little-endian accessors for unaligned bytes; the caller has checked the bounds.
template <class T>
T load_le(const uint8_t* from) {
  static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "on-disk formats are little-endian");
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}
template <class T>
void store_le(uint8_t* to, T value) {
  std::memcpy(to, &value, sizeof(T));
}
template <class T>
void append_le(Bytes& to, T value) {
  const size_t old_size = to.size();
  to.resize(old_size + sizeof(T));
  store_le(to.data() + old_size, value);
}
/// Copies `from` to `to`, where there is room for it; they do not overlap. GCC 12 makes a loop over
/// single bytes of std::ranges::copy().
inline void copy_bytes(ByteView from, uint8_t* to) {
  if (!from.empty()) std::memcpy(to, from.data(), from.size());
}
inline void append(Bytes& to, ByteView bytes) {
  to.insert(to.end(), bytes.begin(), bytes.end());
}

/// `value` rounded up to a multiple of `alignment` (a power of two); the caller rules out overflow.
constexpr uint64_t align_up(uint64_t value, uint64_t alignment) {
  return (value + alignment - 1) & ~(alignment - 1);
}

/// Whether all of `text` is UTF-8 (RFC 3629).
bool is_utf8(std::string_view text);
/// "1.5 MiB", for people.
std::string human_bytes(uint64_t bytes);
/// Text safe for one line of a terminal or log: control and non-UTF-8 bytes as \xNN, quoted with '.
std::string quoted(std::string_view text);

}  // namespace varve
