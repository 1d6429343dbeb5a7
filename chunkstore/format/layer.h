#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"
#include "base/hash.h"

/// The layer object `layers/<id>`: identity of an image's bytes. Defined by varve-layer(5).
///
/// The object is the header part (fixed header and leaf table) followed by the leaf pages. The id
/// is the SHA-256 of the header part alone; the header part names every leaf by its hash, so the id
/// names every byte of the image, and each leaf can be read by range and verified by itself.
namespace varve::chunkstore {

inline constexpr uint32_t kChunkBytesMax = 1 << 20;
inline constexpr uint32_t kLeafEntryCountMax = 1024;
inline constexpr size_t kLayerHeaderFixedBytes = 64;
inline constexpr size_t kLeafTableEntryBytes = 40;
inline constexpr size_t kLeafEntryBytes = 36;
inline constexpr size_t kLeafPageBytesMax = kLeafEntryCountMax * kLeafEntryBytes;
/// 2³² blocks of 4 KiB: what an EROFS image can address.
inline constexpr uint64_t kImageBytesMax = uint64_t{1} << 44;
/// 134 million chunks, 12 TB at the usual 96 KiB.
inline constexpr uint32_t kLeafCountMax = 1 << 17;
inline constexpr uint64_t kImageBlockBytes = 4096;
inline constexpr std::string_view kLayerMagic = "VARVELAY";

/// One chunk of the image, in image order: its offset is the sum of the raw sizes before it.
/// On disk, 36 bytes: u8[32] id, u32 raw_size.
struct LayerChunk {
  Digest id;              ///< SHA-256 of the raw bytes.
  uint32_t raw_size = 0;  ///< 1 … kChunkBytesMax.
};

/// On disk, 40 bytes: u8[32] digest, u64 first_offset.
struct LayerLeaf {
  Digest digest;              ///< SHA-256 of the leaf page's bytes.
  uint64_t first_offset = 0;  ///< Image offset of its first chunk.
};

/// The fixed part of the header. On disk, 64 bytes:
///    0  object prefix, magic "VARVELAY"
///   20  u32  header_size    bytes of the header part: 64 + 40 × leaf_count
///   24  u64  image_size
///   32  u64  metadata_size
///   40  u64  chunk_count
///   48  u32  leaf_count     = ⌈chunk_count / 1024⌉
///   52  u32  root_nid       1 … 65535
///   56  u32  leaf_entry_count  1024
///   60  u32  reserved       0
///   64  leaf table, leaf_count entries
struct LayerHeader {
  uint64_t image_size = 0;     ///< Bytes, a multiple of 4,096, at most kImageBytesMax.
  uint64_t metadata_size = 0;  ///< Bytes from the start; a chunk boundary.
  uint32_t root_nid = 0;       ///< EROFS nid of the root directory.
  uint64_t chunk_count = 0;

  uint32_t leaf_count() const {
    return static_cast<uint32_t>((chunk_count + kLeafEntryCountMax - 1) / kLeafEntryCountMax);
  }
  /// Bytes of the header part.
  uint64_t header_size() const {
    return kLayerHeaderFixedBytes + uint64_t{leaf_count()} * kLeafTableEntryBytes;
  }
  /// Every leaf but the last holds kLeafEntryCountMax entries.
  uint32_t leaf_entry_count(uint32_t leaf) const {
    return leaf + 1 < leaf_count()
               ? kLeafEntryCountMax
               : static_cast<uint32_t>(chunk_count - uint64_t{leaf} * kLeafEntryCountMax);
  }
  /// Offset of a leaf page in the object.
  uint64_t leaf_page_offset(uint32_t leaf) const {
    return header_size() + uint64_t{leaf} * kLeafPageBytesMax;
  }
  uint64_t object_size() const { return header_size() + chunk_count * kLeafEntryBytes; }

  bool operator==(const LayerHeader&) const = default;
};

/// @param bytes  The first kLayerHeaderFixedBytes of the object. Every field is within its bounds
///               on success. Errors: kCorruption, kUnsupported.
Result<LayerHeader> parse_layer_header(ByteView bytes);

/// Parses leaf table entries `first` … `first + bytes.size() / 40` of a layer whose header part has
/// been verified by its hash. @param previous_offset  first_offset of leaf `first - 1`.
/// Errors: kCorruption (offsets that do not rise, or pass the image's end).
Result<std::vector<LayerLeaf>> parse_leaf_table(ByteView bytes, const LayerHeader& header,
                                                uint32_t first, uint64_t previous_offset);

/// Parses a leaf page after checking its hash. @param size  Image bytes that the leaf covers: the
/// next leaf's first_offset, or image_size, less its own. Errors: kCorruption.
Result<std::vector<LayerChunk>> parse_leaf(ByteView page, const LayerLeaf& leaf, uint64_t size);

/// A whole layer object and its id.
struct EncodedLayer {
  Digest id;
  Bytes object;
};

/// Encodes a layer from its chunks in image order; their raw sizes add up to `image_size`, and
/// `metadata_size` is a sum of the first ones. 36 bytes a chunk.
/// Errors: kInvalidArgument (a sum does not fit, too many chunks).
Result<EncodedLayer> encode_layer(uint64_t image_size, uint64_t metadata_size, uint32_t root_nid,
                                  const std::vector<LayerChunk>& chunks);

}  // namespace varve::chunkstore
