#pragma once

#include <span>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/error.h"
#include "chunkstore/read/layer_map.h"
#include "chunkstore/store/store.h"
#include "fs/stats/layer_stats.h"

namespace varve::fs {

/// What a fetch does with the chunks it brings.
class ChunkConsumer {
 public:
  virtual ~ChunkConsumer() = default;
  /// Decodes and verifies `stored`, and uses the result. kCorruption makes the fetcher look for
  /// another placement and call again, once.
  virtual Status decode(size_t index, const chunkstore::ChunkLocation& location,
                        ByteView stored) = 0;
  /// The chunk cannot be had.
  virtual void failed(size_t index, const chunkstore::ChunkLocation& location,
                      const Error& error) = 0;
};

/// Where chunks are fetched from.
struct ChunkOrigin {
  chunkstore::Store& store;
  chunkstore::LayerMap& map;
  LayerStats& stats;
};

/// Brings chunks from a store: neighbours in one range read of at most kRangeBytesMax, one second
/// try by a newer placement where a chunk is missing or wrong. Loop-local; keeps its buffer.
class ChunkFetcher {
 public:
  static constexpr uint64_t kRangeBytesMax = 4 << 20;
  /// Unwanted bytes between two chunks that are read along rather than asked for around.
  static constexpr uint64_t kGapBytesMax = 4096;

  /// Calls decode() or failed() for each of `chunks`, in order inside a range read.
  void fetch(const ChunkOrigin& origin, std::span<const chunkstore::ChunkLocation> chunks,
             Deadline deadline, ChunkConsumer& consumer);

 private:
  struct Run {
    size_t first = 0;  // Index into chunks.
    size_t count = 0;
    uint64_t bytes = 0;
  };

  static Run next_run(std::span<const chunkstore::ChunkLocation> chunks, size_t first);
  Status read_range(const ChunkOrigin& origin, const chunkstore::ChunkLocation& first,
                    uint64_t bytes, Deadline deadline);
  void fetch_run(const ChunkOrigin& origin, std::span<const chunkstore::ChunkLocation> chunks,
                 const Run& run, Deadline deadline, ChunkConsumer& consumer);
  Status fetch_one(const ChunkOrigin& origin, size_t index,
                   const chunkstore::ChunkLocation& location, Deadline deadline,
                   ChunkConsumer& consumer);
  void fetch_again(const ChunkOrigin& origin, size_t index,
                   const chunkstore::ChunkLocation& location, Error error, Deadline deadline,
                   ChunkConsumer& consumer);

  Bytes buffer_;
};

}  // namespace varve::fs
