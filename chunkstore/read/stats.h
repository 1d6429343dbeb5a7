#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/hash.h"
#include "chunkstore/store/store.h"

namespace varve::chunkstore {

struct ImageStats {
  Digest id;
  std::vector<std::string> refs;  ///< "name:tag", sorted.
  uint64_t layer_count = 0;
  uint64_t image_bytes = 0;      ///< Sum of the layers' image sizes.
  uint64_t chunk_count = 0;      ///< Distinct.
  uint64_t raw_bytes = 0;        ///< Of its distinct chunks.
  uint64_t stored_bytes = 0;     ///< Of its distinct chunks.
  uint64_t exclusive_bytes = 0;  ///< Stored bytes that no other image uses.
};

struct SharedStats {
  size_t first = 0;  ///< Index into StoreStats::images.
  size_t second = 0;
  uint64_t shared_bytes = 0;  ///< Stored bytes of chunks that both use.
};

struct StoreStats {
  uint64_t pack_count = 0;
  uint64_t pack_bytes = 0;  ///< Whole objects.
  uint64_t layer_count = 0;
  uint64_t layer_bytes = 0;
  uint64_t placement_count = 0;
  uint64_t placement_bytes = 0;
  uint64_t image_count = 0;
  uint64_t ref_count = 0;
  uint64_t chunk_count = 0;         ///< Distinct chunks that images use.
  uint64_t raw_bytes = 0;           ///< Of those.
  uint64_t stored_bytes = 0;        ///< Of those.
  uint64_t image_bytes = 0;         ///< Sum of all images' sizes: what it would be without sharing.
  std::vector<ImageStats> images;   ///< Sorted by id.
  std::vector<Error> damaged_refs;  ///< Not in ref_count.
  std::vector<SharedStats> shared;  ///< Pairs that share something, in order of the indexes.

  /// image_bytes / raw_bytes: how often a distinct byte is used. 0 for an empty store.
  double dedup_ratio() const {
    return raw_bytes == 0 ? 0 : static_cast<double>(image_bytes) / static_cast<double>(raw_bytes);
  }
  /// raw_bytes / stored_bytes.
  double compression_ratio() const {
    return stored_bytes == 0 ? 0
                             : static_cast<double>(raw_bytes) / static_cast<double>(stored_bytes);
  }
};

/// Sizes and sharing of all images of a store, tagged or not. Reads every layer's chunk list, not
/// the chunks: ~60 bytes of memory a distinct chunk, and 40 a chunk of the largest image.
/// Images that are deleted meanwhile are left out.
/// @param spool_directory  For the chunk lists. Errors: the first object, refs aside, that
/// cannot be read.
Result<StoreStats> collect_stats(std::shared_ptr<Store> store, const std::string& spool_directory);

}  // namespace varve::chunkstore
