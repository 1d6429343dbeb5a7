#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "fs/cache/memory_cache.h"
#include "fs/cache/single_flight.h"
#include "fs/fetch/ahead_reader.h"
#include "fs/fetch/chunk_fetcher.h"
#include "fs/fetch/fetch_pool.h"
#include "fs/fetch/pending_reads.h"
#include "fs/log.h"

namespace varve::fs {

class AttachedLayer;
struct LayerSource;

/// Carries out reads that need the store: finds the chunks, takes what the memory cache or another
/// thread has, fetches and verifies the rest, and fills the payloads. Loop-local.
class StoreReadExecutor : public ReadExecutor {
 public:
  /// The references must outlive the executor.
  StoreReadExecutor(MemoryCache& cache, PendingReads& pending, const LogSink& log)
      : cache_(cache), pending_(pending), log_(log), ahead_(cache, fetcher_) {}

  void execute(const std::vector<std::shared_ptr<ReadOperation>>& batch) override;
  void read_ahead(const AheadWork& work) override { ahead_.run(work); }

 private:
  /// A read and how many of its parts are missing.
  struct Progress {
    std::shared_ptr<ReadOperation> read;
    size_t missing_count = 0;
    bool is_over = false;    // Answered, by whomever.
    size_t claim_count = 0;  // How often this executor has claimed it.
  };
  /// The part of a chunk that a read wants.
  struct Use {
    size_t progress_index = 0;
    uint32_t chunk_offset = 0;
    uint32_t size = 0;
    uint32_t payload_offset = 0;
  };
  struct Need {
    chunkstore::ChunkLocation location;
    std::vector<Use> uses;
  };
  class Consumer;

  void plan(AttachedLayer& layer, size_t progress_index, std::vector<Need>& needs);
  Status add_needs(AttachedLayer& layer, size_t progress_index, const ReadSegment& segment,
                   std::vector<Need>& needs);
  bool fill_local_parts(AttachedLayer& layer, Progress& progress);
  void fetch(AttachedLayer& layer, std::vector<const Need*> needs);
  std::vector<const Need*> fetch_once(AttachedLayer& layer,
                                      const std::shared_ptr<LayerSource>& source,
                                      const std::vector<const Need*>& needs, Deadline deadline);
  static bool claim(Progress& progress);
  static void unclaim(Progress& progress);
  void deliver(const Need& need, const ChunkBytes& bytes);
  void part_is_there(Progress& progress);
  void fail_read(Progress& progress, int errno_value);
  void fail_need(AttachedLayer& layer, const Need& need, const Error& error);
  Deadline latest_deadline() const;

  MemoryCache& cache_;
  PendingReads& pending_;
  const LogSink& log_;
  ChunkFetcher fetcher_;
  AheadReader ahead_;
  std::vector<Progress> progress_;  // Of the batch.
};

}  // namespace varve::fs
