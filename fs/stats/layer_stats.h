#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "fs/cache/memory_cache.h"
#include "fs/stats/touched_pages.h"

namespace varve::fs {

/// Counters of one attached layer; they only grow. Thread-safe.
struct LayerStats {
  explicit LayerStats(uint64_t image_bytes) : touched(image_bytes) {}

  TouchedPages touched;                     ///< Pages requested through FUSE.
  std::atomic<uint64_t> fetched_bytes{0};   ///< Stored bytes moved from the store.
  std::atomic<uint64_t> fetched_chunks{0};  ///< Chunks decoded from them.
  std::atomic<uint64_t> range_reads{0};     ///< Requests to the store for them.
  std::atomic<uint64_t> read_requests{0};   ///< FUSE reads.
  std::atomic<uint64_t> read_bytes{0};      ///< Bytes they asked for.
  std::atomic<uint64_t> memory_hits{0};     ///< Chunks found in the memory cache.
  std::atomic<uint64_t> failed_reads{0};    ///< FUSE reads that ended in an error.
  /// The cache may outlive the layer with chunks of it that nobody used yet.
  const std::shared_ptr<AheadCounters> ahead = std::make_shared<AheadCounters>();
};

}  // namespace varve::fs
