#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>

#include "chunkstore/erofs/image_source.h"
#include "chunkstore/read/chunk_reader.h"
#include "chunkstore/read/layer_map.h"

namespace varve::chunkstore {

/// The image of a layer in a store, for tools that read much of it (cat, export, verify): keeps a
/// few decoded chunks, and reads ahead while reads are sequential. Thread-safe; one fetch at a
/// time.
class LayerImageSource final : public erofs::ImageSource {
 public:
  struct Options {
    size_t cache_bytes_max = 8 << 20;
    /// Stored bytes that one sequential fetch brings at most; 0 = no read-ahead.
    uint32_t read_ahead_bytes_max = 2 << 20;
    /// For each read of the store, in milliseconds from its start; 0 = none.
    int64_t timeout_ms = 0;
  };

  /// Errors: as LayerMap::open.
  static Result<std::unique_ptr<LayerImageSource>> open(std::shared_ptr<Store> store,
                                                        const Digest& layer,
                                                        const std::string& spool_directory,
                                                        const Options& options);
  LayerImageSource(std::shared_ptr<Store> store, std::unique_ptr<LayerMap> map,
                   const Options& options);

  uint64_t size() const override { return map_->header().image_size; }
  /// Errors: as ChunkReader::read.
  Status read(uint64_t offset, MutableByteView to) override;

  LayerMap& map() { return *map_; }

 private:
  struct CachedChunk {
    ChunkLocation location;
    Bytes raw;
  };
  Result<const CachedChunk*> chunk_at(uint64_t offset);
  Result<std::vector<ChunkLocation>> plan_fetch(const ChunkLocation& first, Deadline deadline);

  const std::unique_ptr<LayerMap> map_;
  ChunkReader reader_;
  const Options options_;
  std::mutex mutex_;
  std::list<CachedChunk> cache_;  // most recently used first
  size_t cached_bytes_ = 0;
  uint64_t next_index_ = UINT64_MAX;  // what a sequential reader would miss next
  uint32_t window_bytes_ = 0;
};

}  // namespace varve::chunkstore
