#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/error.h"
#include "chunkstore/format/chunk.h"
#include "chunkstore/read/layer_map.h"
#include "chunkstore/store/store.h"

namespace varve::chunkstore {

/// Whether one range read can bring both: `second` lies right behind `first` in the same pack.
bool are_neighbours(const ChunkLocation& first, const ChunkLocation& second);

/// Fetches chunks from a store and verifies each against its id; nothing unverified leaves it.
/// Thread-safe.
class ChunkReader {
 public:
  explicit ChunkReader(std::shared_ptr<Store> store);
  ~ChunkReader();

  /// The raw bytes of one chunk.
  ///
  /// Where the pack is missing or the bytes are wrong, `map` re-reads its placement and the chunk
  /// is fetched once more. Errors name chunk, pack and offset: kNotFound, kCorruption, the store's.
  Result<Bytes> read(LayerMap& map, const ChunkLocation& location, Deadline deadline);

  /// The raw bytes of each of `locations` (chunks of `map` in any order). Those that are neighbours
  /// in a pack come with one range read of at most `range_bytes_max` stored bytes. Errors as
  /// read(); the first one ends the call.
  Result<std::vector<Bytes>> read_all(LayerMap& map, std::span<const ChunkLocation> locations,
                                      Deadline deadline, uint32_t range_bytes_max = 4 << 20);

  /// One range read for neighbours (are_neighbours() holds between each two): their stored bytes,
  /// not verified. No second try. For caches that keep chunks compressed: see decode().
  Result<Bytes> fetch_stored(std::span<const ChunkLocation> run, Deadline deadline);
  /// Decodes and verifies the stored bytes of one chunk into exactly `raw` (raw_size bytes).
  /// Errors: kCorruption, naming chunk, pack and offset.
  Status decode(const ChunkLocation& location, ByteView stored, MutableByteView raw);

  /// Stored bytes moved from the store so far, whatever came of them.
  uint64_t fetched_bytes() const { return fetched_bytes_.load(std::memory_order_relaxed); }

 private:
  Result<Bytes> read_once(const ChunkLocation& location, Deadline deadline);
  Status read_run(LayerMap& map, std::span<const ChunkLocation> run, Deadline deadline,
                  std::vector<Bytes>& to);

  const std::shared_ptr<Store> store_;
  std::atomic<uint64_t> fetched_bytes_{0};
  std::mutex mutex_;
  std::vector<ChunkDecoder> idle_decoders_;
};

}  // namespace varve::chunkstore
