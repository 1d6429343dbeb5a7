#include "chunkstore/erofs/crc32c.h"

#include <array>

namespace varve::chunkstore::erofs {
namespace {

constexpr uint32_t kPolynomialReversed = 0x82F63B78;

constexpr std::array<uint32_t, 256> make_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit)
      value = (value & 1) != 0 ? (value >> 1) ^ kPolynomialReversed : value >> 1;
    table[i] = value;
  }
  return table;
}
constexpr std::array<uint32_t, 256> kTable = make_table();

}  // namespace

uint32_t crc32c(uint32_t seed, ByteView bytes) {
  for (const uint8_t byte : bytes) seed = (seed >> 8) ^ kTable[(seed ^ byte) & 0xFF];
  return seed;
}

}  // namespace varve::chunkstore::erofs
