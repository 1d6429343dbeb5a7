#pragma once

#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/error.h"
#include "chunkstore/format/chunk.h"
#include "chunkstore/read/layer_map.h"
#include "chunkstore/store/store.h"
#include "fs/stats/layer_stats.h"

namespace varve::fs {

/// What a fetch does with the chunks it brings.
class ChunkConsumer {
 public:
  virtual ~ChunkConsumer() = default;
  /// Where to decode the chunk to, `location.raw_size` bytes; nothing when it is not wanted any
  /// more. decoded() or damaged() follows, but others may be begun before.
  virtual std::optional<MutableByteView> begin(size_t index,
                                               const chunkstore::ChunkLocation& location) = 0;
  /// The chunk is there, verified.
  virtual void decoded(size_t index, const chunkstore::ChunkLocation& location) = 0;
  /// What is there is not the chunk: it is begun once more if another placement is found, or it has
  /// failed.
  virtual void damaged(size_t index) = 0;
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

/// Brings chunks from a store and decodes them: neighbours in one range read of at most
/// kRangeBytesMax, one second try by a newer placement where a chunk is missing or wrong.
/// Loop-local; keeps its buffer.
class ChunkFetcher {
 public:
  static constexpr uint64_t kRangeBytesMax = 4 << 20;
  /// Unwanted bytes between two chunks that are read along rather than asked for around.
  static constexpr uint64_t kGapBytesMax = 4096;
  /// So many chunks that follow one another are begun before the first is decoded: as many as are
  /// hashed together.
  static constexpr size_t kTogetherCountMax = 3;

  /// Calls begin() and decoded(), or failed(), for each of `chunks`, in order inside a range read.
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
  using Failures = std::vector<std::pair<size_t, Error>>;

  /// Decodes chunks `first` … `first + count - 1`, which lie in the buffer from `buffer_offset` of
  /// their pack on.
  void decode(std::span<const chunkstore::ChunkLocation> chunks, size_t first, size_t count,
              uint64_t buffer_offset, ChunkConsumer& consumer, Failures& failures);
  void fetch_run(const ChunkOrigin& origin, std::span<const chunkstore::ChunkLocation> chunks,
                 const Run& run, Deadline deadline, ChunkConsumer& consumer);
  Status fetch_one(const ChunkOrigin& origin, size_t index,
                   const chunkstore::ChunkLocation& location, Deadline deadline,
                   ChunkConsumer& consumer);
  void fetch_again(const ChunkOrigin& origin, size_t index,
                   const chunkstore::ChunkLocation& location, Error error, Deadline deadline,
                   ChunkConsumer& consumer);

  Bytes buffer_;
  chunkstore::ChunkDecoder decoder_;
};

}  // namespace varve::fs
