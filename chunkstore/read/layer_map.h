#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/error.h"
#include "base/hash.h"
#include "chunkstore/format/layer.h"
#include "chunkstore/store/store.h"

namespace varve::chunkstore {

/// Where one chunk is, in the image and in the store. Value type.
struct ChunkLocation {
  uint64_t index = 0;         ///< Position in the layer, 0-based.
  uint64_t image_offset = 0;  ///< Of its first byte.
  Digest id;
  uint32_t raw_size = 0;
  Digest pack;  ///< Pack that holds it, by the placement in force.
  uint32_t pack_offset = 0;
  uint32_t stored_size = 0;
  bool is_raw = false;  ///< Stored without compression.
};

/// Maps image offsets to chunks. Leaves (verified against the header) and placement pages (not
/// trusted: every chunk is verified by its id) are fetched when first needed and paged from an
/// unlinked local file, so that an idle layer costs little memory whatever its size: a bit a leaf,
/// a bit a placement page, and up to 512 offsets (at most 40 KiB).
/// Thread-safe: pages are fetched in parallel, the same page once.
class LayerMap {
 public:
  /// Reads the header, `current` and the placement's header; nothing else.
  /// @param spool_directory  Where the local pages lie (a file without a name; one descriptor).
  /// When
  ///                         it is full, pages are fetched anew each time they are needed.
  /// Errors: kNotFound (no such layer, no placement), kCorruption, kUnsupported, the store's.
  static Result<std::unique_ptr<LayerMap>> open(std::shared_ptr<Store> store, const Digest& layer,
                                                const std::string& spool_directory,
                                                Deadline deadline);
  virtual ~LayerMap() = default;

  virtual const Digest& layer() const = 0;
  virtual const LayerHeader& header() const = 0;
  /// The chunk that covers image byte `offset` (< image_size). May fetch one leaf and one placement
  /// page. Cost when both are local: two small preads of the spool; none for the last few chunks.
  virtual Result<ChunkLocation> locate(uint64_t offset, Deadline deadline) = 0;
  /// Chunk `index` (< chunk_count).
  virtual Result<ChunkLocation> chunk(uint64_t index, Deadline deadline) = 0;
  /// What locate() would return when that needs no access to the store, else nothing: for callers
  /// that must never wait for a backend.
  virtual std::optional<ChunkLocation> locate_local(uint64_t offset) = 0;
  /// Re-reads `current` (a chunk was not where it said, or its bytes were wrong): true when another
  /// placement is in force now.
  virtual Result<bool> refresh_placement(Deadline deadline) = 0;
  /// Stored bytes of all chunks, each counted once per layer, as the placement says.
  virtual uint64_t stored_bytes() const = 0;
  /// Bytes of heap this map holds.
  virtual size_t memory_bytes() const = 0;
};

}  // namespace varve::chunkstore
