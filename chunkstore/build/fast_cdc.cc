#include "chunkstore/build/fast_cdc.h"

#include <algorithm>
#include <array>
#include <string>

#include "base/hash.h"

namespace varve::chunkstore::fast_cdc {
namespace {

using GearTable = std::array<uint64_t, 256>;

GearTable make_gear_table() {
  GearTable table;
  for (size_t i = 0; i < table.size(); ++i) {
    const Digest digest = sha256(as_bytes(std::string(kGearSeed) + static_cast<char>(i)));
    table[i] = load_le<uint64_t>(digest.bytes.data());
  }
  return table;
}

constexpr uint64_t top_bits(unsigned count) {
  return ~uint64_t{0} << (64 - count);
}

/// Rolls over [from, end) and returns the position after the byte that ends the chunk, or `end`.
const uint8_t* roll(const GearTable& gear, uint64_t mask, const uint8_t* from, const uint8_t* end,
                    uint64_t& fingerprint, bool& found) {
  uint64_t f = fingerprint;
  for (; from < end; ++from) {
    f = (f << 1) + gear[*from];
    if ((f & mask) == 0) {
      found = true;
      return from + 1;
    }
  }
  fingerprint = f;
  return end;
}

}  // namespace

size_t first_chunk_size(ByteView data) {
  static const GearTable gear = make_gear_table();
  const size_t size_max = std::min(data.size(), kChunkBytesMax);
  if (size_max <= kChunkBytesMin) return size_max;
  const uint8_t* const start = data.data();
  const uint8_t* const end = start + size_max;
  const uint8_t* const normal = start + std::min(size_max, kChunkBytesNormal);
  uint64_t fingerprint = 0;
  bool found = false;
  const uint8_t* at =
      roll(gear, top_bits(kBitsBeforeNormal), start + kChunkBytesMin, normal, fingerprint, found);
  if (!found) at = roll(gear, top_bits(kBitsAfterNormal), at, end, fingerprint, found);
  return static_cast<size_t>(at - start);
}

}  // namespace varve::chunkstore::fast_cdc
