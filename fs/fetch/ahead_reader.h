#pragma once

#include "fs/cache/memory_cache.h"
#include "fs/fetch/chunk_fetcher.h"
#include "fs/fetch/fetch_pool.h"

namespace varve::fs {

/// Brings chunks that nobody asked for yet into the memory cache. What it cannot get it leaves to
/// those who do ask. Loop-local.
class AheadReader {
 public:
  /// The references must outlive the reader.
  AheadReader(MemoryCache& cache, ChunkFetcher& fetcher) : cache_(cache), fetcher_(fetcher) {}

  /// Skips chunks that are there, on their way, or not wanted any more.
  void run(const AheadWork& work);

 private:
  class Consumer;

  MemoryCache& cache_;
  ChunkFetcher& fetcher_;
};

}  // namespace varve::fs
