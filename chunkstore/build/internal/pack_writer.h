#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "base/error.h"
#include "base/hash.h"
#include "chunkstore/format/chunk.h"
#include "chunkstore/format/pack.h"
#include "chunkstore/store/store.h"

namespace varve::chunkstore {

/// A pack that is written but not published.
struct FinishedPack {
  uint32_t number = 0;  ///< In the build.
  Digest id;
  std::unique_ptr<ObjectWriter> writer;
};

/// Writes chunks one after another into packs. Loop-local.
class PackWriter {
 public:
  struct Place {
    uint32_t pack = 0;  ///< Number of the pack in the build.
    uint32_t offset = 0;
  };

  /// @param begin   Gives a new pack its number.
  /// @param finish  Takes a pack that is complete.
  PackWriter(Store& store, uint32_t pack_bytes_max, std::function<uint32_t()> begin,
             std::function<Status(FinishedPack)> finish);

  /// Appends a chunk; ends the pack before that when the chunk would make it too large.
  Result<Place> add(const Digest& id, uint32_t raw_size, const StoredChunk& stored);
  /// Ends the pack that is being written, if any.
  Status flush();

 private:
  uint64_t size_with(size_t stored_size) const {
    return size_ + stored_size + (entries_.size() + 1) * kPackEntryBytes + kPackTrailerBytes;
  }

  Store& store_;
  const uint32_t pack_bytes_max_;
  const std::function<uint32_t()> begin_;
  const std::function<Status(FinishedPack)> finish_;
  std::unique_ptr<ObjectWriter> writer_;
  uint32_t number_ = 0;
  Xxh3Hasher128 stored_hash_;
  std::vector<PackEntry> entries_;
  uint32_t size_ = 0;
};

}  // namespace varve::chunkstore
