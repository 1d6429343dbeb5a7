#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "fs/cache/memory_cache.h"
#include "fs/fetch/fetch_pool.h"
#include "fs/fetch/pending_reads.h"
#include "fs/layer/attached_layer.h"
#include "fs/log.h"

namespace varve::fs {

struct ReadServiceOptions {
  uint64_t cache_bytes_max = 256 << 20;
  int64_t read_deadline_ms = 30'000;
};

/// Answers FUSE reads of image bytes: from the metadata file and the memory cache at once, from the
/// store on the threads of the layer's pool. Thread-safe.
class ReadService {
 public:
  ReadService(ReadServiceOptions options, LogSink log,
              PendingReads::IsBeingKilled killed = is_being_killed);

  /// Answers `request`, now or later. Never blocks on a store.
  ///
  /// @param segments  The image ranges that make up the reply, in order; inside the image.
  /// @param size      Bytes of the reply: the sum of the segments.
  void read(Request& request, std::shared_ptr<AttachedLayer> layer,
            std::vector<ReadSegment> segments, uint32_t size);
  void interrupt(uint64_t unique) { pending_.interrupt(unique); }
  /// Ends every waiting read with EIO, also those to come.
  void abort_all() { pending_.abort_all(EIO); }

  /// For the pools whose layers are read here.
  std::unique_ptr<ReadExecutor> make_executor();

  const PendingReads& pending() const { return pending_; }
  const MemoryCache& cache() const { return cache_; }

 private:
  /// For a read that has waited long: its store may hang.
  static void ask_another_source(const std::shared_ptr<ReadOperation>& read);
  /// Tells the layer's read-ahead what is read, and queues what it wants.
  void follow(const std::shared_ptr<AttachedLayer>& layer, const LayerSource& source,
              const std::vector<ReadSegment>& segments);
  /// True when every byte was local and is in the payload now.
  bool copy_local(Request& request, AttachedLayer& layer, const LayerSource& source,
                  const std::vector<ReadSegment>& segments);

  const ReadServiceOptions options_;
  const LogSink log_;
  MemoryCache cache_;
  PendingReads pending_;
};

}  // namespace varve::fs
