#pragma once

#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"
#include "base/hash.h"

/// The layer object `layers/<id>`: identity of an image's bytes. Defined by varve-layer(5).
namespace varve::chunkstore {

inline constexpr uint32_t kChunkBytesMax = 1 << 20;
inline constexpr uint32_t kLeafEntryCountMax = 1024;

/// One chunk of the image, in image order: its offset is the sum of the raw sizes before it.
struct LayerChunk {
  Digest id;              ///< SHA-256 of the raw bytes.
  uint32_t raw_size = 0;  ///< 1 … kChunkBytesMax.
};

struct LayerLeaf {
  Digest digest;              ///< SHA-256 of the leaf page's bytes.
  uint64_t first_offset = 0;  ///< Image offset of its first chunk.
};

struct LayerHeader {
  uint64_t image_size = 0;     ///< Bytes, a multiple of 4,096.
  uint64_t metadata_size = 0;  ///< Bytes from the start; a chunk boundary.
  uint32_t root_nid = 0;       ///< EROFS nid of the root directory.
  uint64_t chunk_count = 0;
  std::vector<LayerLeaf> leaves;  ///< Every leaf but the last holds kLeafEntryCountMax entries.
};

}  // namespace varve::chunkstore
