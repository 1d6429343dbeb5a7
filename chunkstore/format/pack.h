#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"
#include "base/hash.h"

/// The pack object `packs/<hex2>/<pack_id>`: chunks, index, trailer. Defined by varve-store(5).
namespace varve::chunkstore {

/// The whole object, trailer included.
inline constexpr uint32_t kPackBytesMax = 64u << 20;
inline constexpr size_t kPackEntryBytes = 48;
inline constexpr size_t kPackTrailerBytes = 80;
inline constexpr std::string_view kPackMagic = "VARVEPAK";

/// One chunk of a pack. On disk, 48 bytes:
///    0  u8[32] id           SHA-256 of the raw bytes
///   32  u32    offset       of the stored bytes, from the start of the pack
///   36  u32    stored_size  bytes, 1 … raw_size
///   40  u32    raw_size     bytes, 1 … 1 MiB
///   44  u32    flags        bit 0: stored raw (then stored_size = raw_size); others are 0
struct PackEntry {
  Digest id;
  uint32_t offset = 0;
  uint32_t stored_size = 0;
  uint32_t raw_size = 0;
  bool is_raw = false;

  bool operator==(const PackEntry&) const = default;
};

/// The last 80 bytes of a pack:
///    0  object prefix, magic "VARVEPAK"
///   20  u32    entry_count
///   24  u64    index_offset   = end of the last chunk
///   32  u8[32] index_digest   SHA-256 of the index
///   64  u8[16] stored_hash    XXH3-128 of all before the index, canonical form
struct PackTrailer {
  uint32_t entry_count = 0;
  uint64_t index_offset = 0;
  Digest index_digest;
  std::array<uint8_t, 16> stored_hash{};

  uint64_t index_size() const { return uint64_t{entry_count} * kPackEntryBytes; }
};

/// The name of a pack: SHA-256 of its trailer, which holds the hash of the index, which names every
/// chunk.
/// @param pack  The whole pack or any end of it that holds the trailer.
Digest pack_id(ByteView pack);

/// Index and trailer of a pack whose chunks lie one after another from offset 0 in this order.
/// @param stored_hash  Of the stored chunks.
Bytes encode_pack_tail(const std::vector<PackEntry>& entries, const Xxh128& stored_hash);

/// @param bytes      The last kPackTrailerBytes of the pack.
/// @param pack_size  Size of the whole object.
/// On success index_offset + index_size() + kPackTrailerBytes == pack_size ≤ kPackBytesMax.
/// Errors: kCorruption, kUnsupported.
Result<PackTrailer> parse_pack_trailer(ByteView bytes, uint64_t pack_size);

/// @param bytes  The index: trailer.index_size() bytes. Checked against the trailer's digest; the
///               entries are contiguous from 0 to trailer.index_offset.
/// Errors: kCorruption, kUnsupported (unknown flag).
Result<std::vector<PackEntry>> parse_pack_index(ByteView bytes, const PackTrailer& trailer);

}  // namespace varve::chunkstore
