#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"
#include "base/hash.h"

/// The placement object `placements/<layer>/<sha256>`: where the chunks of a layer lie. Defined by
/// varve-layer(5). Not trusted: whoever fetches a chunk checks it against its id.
namespace varve::chunkstore {

inline constexpr uint32_t kPlacementPageEntryCount = 1024;
inline constexpr size_t kPlacementFixedBytes = 96;
inline constexpr size_t kPlacementEntryBytes = 16;
inline constexpr size_t kPlacementPageBytesMax = kPlacementPageEntryCount * kPlacementEntryBytes;
inline constexpr uint32_t kPlacementPackCountMax = 1 << 20;
inline constexpr std::string_view kPlacementMagic = "VARVEPLC";

/// Where one chunk lies. On disk, 16 bytes, in the order of the layer's chunks:
///    0  u32  pack         index into the pack table
///    4  u32  offset       in the pack
///    8  u32  stored_size  bytes, 1 … 1 MiB
///   12  u32  flags        bit 0: stored raw; others are 0
struct PlacementEntry {
  uint32_t pack = 0;
  uint32_t offset = 0;
  uint32_t stored_size = 0;
  bool is_raw = false;

  bool operator==(const PlacementEntry&) const = default;
};

/// The fixed part. On disk, 96 bytes:
///    0  object prefix, magic "VARVEPLC"
///   20  u32    header_size   96 + 32 × pack_count
///   24  u8[32] layer
///   56  u64    chunk_count   the layer's
///   64  u64    stored_bytes  of all chunks, each counted once
///   72  u32    pack_count    1 … 2²⁰
///   76  u32    page_entry_count  1024
///   80  u8[16] reserved      0
///   96  pack table: pack_count × u8[32], then the entries
struct PlacementHeader {
  Digest layer;
  uint64_t chunk_count = 0;
  uint64_t stored_bytes = 0;
  uint32_t pack_count = 0;

  uint64_t header_size() const { return kPlacementFixedBytes + uint64_t{pack_count} * 32; }
  uint32_t page_count() const {
    return static_cast<uint32_t>((chunk_count + kPlacementPageEntryCount - 1) /
                                 kPlacementPageEntryCount);
  }
  uint64_t object_size() const { return header_size() + chunk_count * kPlacementEntryBytes; }

  bool operator==(const PlacementHeader&) const = default;
};

/// A whole placement, for builders and checkers.
struct Placement {
  Digest layer;
  std::vector<Digest> packs;
  std::vector<PlacementEntry> entries;  ///< One a chunk of the layer, in its order.
  uint64_t stored_bytes = 0;            ///< Of all chunks, each counted once.
};

/// @param bytes  The first kPlacementFixedBytes of the object.
/// @param layer, chunk_count  Of the layer it is for. Errors: kCorruption, kUnsupported.
Result<PlacementHeader> parse_placement_header(ByteView bytes, const Digest& layer,
                                               uint64_t chunk_count);
/// @param raw_size  The chunk's, from the layer. Errors: kCorruption, kUnsupported.
Result<PlacementEntry> parse_placement_entry(ByteView bytes, uint32_t pack_count,
                                             uint32_t raw_size);
Bytes encode_placement(const Placement& placement);

/// The text of `placements/<layer>/current` and of a ref: 64 hexadecimal digits and a newline.
std::string encode_pointer(const Digest& digest);
/// Errors: kCorruption.
Result<Digest> parse_pointer(ByteView bytes);
inline constexpr size_t kPointerBytes = 65;

}  // namespace varve::chunkstore
