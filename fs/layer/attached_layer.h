#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "chunkstore/erofs/reader.h"
#include "chunkstore/format/layer.h"
#include "chunkstore/read/layer_map.h"
#include "fs/fetch/chunk_fetcher.h"
#include "fs/fetch/read_ahead.h"
#include "fs/layer/layer_source.h"
#include "fs/layer/metadata_file.h"
#include "fs/stats/layer_stats.h"

namespace varve::fs {

/// One layer, whoever attached it and in however many domains: its metadata region (whole,
/// verified, in a local file without a name), its counters and the stores it was attached from.
///
/// The id says what the bytes are, so they may come from any of those stores: from the one attached
/// last, and what that one cannot give, or does not in time, from the others. An older store is
/// known as long as an attach holds its source. Thread-safe.
class AttachedLayer {
 public:
  /// Fetches the metadata region. Blocks on the store.
  ///
  /// @param spool_directory  Where the local files without names lie.
  /// Errors: kNotFound, kCorruption, kTimedOut, … naming the layer.
  static Result<std::shared_ptr<AttachedLayer>> open(std::shared_ptr<LayerSource> source,
                                                     const std::string& spool_directory,
                                                     Deadline deadline);

  const Digest& id() const { return id_; }
  uint64_t image_bytes() const { return header_.image_size; }
  uint64_t metadata_bytes() const { return header_.metadata_size; }
  const chunkstore::LayerHeader& header() const { return header_; }
  uint64_t stored_bytes() const { return source()->map->stored_bytes(); }

  /// The source that is asked first: its threads read.
  std::shared_ptr<LayerSource> source() const;
  /// The known source in `store`; null when there is none.
  std::shared_ptr<LayerSource> source_in(const chunkstore::Store& store) const;
  /// Asks `source` first from now on.
  void prefer(std::shared_ptr<LayerSource> source);
  /// `source` does not answer: asks another one first from now on. @return the one that is asked
  /// first now; null when there is no other.
  std::shared_ptr<LayerSource> set_aside(const LayerSource& source);

  /// As LayerMap: the chunk at image byte `offset`, or chunk `index`. May block on the stores.
  Result<chunkstore::ChunkLocation> locate(uint64_t offset, Deadline deadline);
  Result<chunkstore::ChunkLocation> chunk(uint64_t index, Deadline deadline);
  /// As ChunkFetcher::fetch(), from every store that has the layer, `first` ahead of the others:
  /// `consumer` hears of a failure when all have failed, and of decoded chunks by where they were
  /// in the store that had them.
  void fetch(ChunkFetcher& fetcher, const std::shared_ptr<LayerSource>& first,
             std::span<const chunkstore::ChunkLocation> chunks, Deadline deadline,
             ChunkConsumer& consumer);

  /// Reads metadata only; never blocks on the store.
  const chunkstore::erofs::Reader& reader() const { return *reader_; }
  /// The user and group ids ≥ chunkstore::kLargeIdMin that own something in the layer, sorted, each
  /// once. The first call walks the tree; never blocks on the store.
  /// Errors: kCorruption; kUnsupported (more than an image could list).
  Result<std::vector<uint32_t>> large_ids();
  MetadataFile& metadata() { return *metadata_; }
  ReadAhead& read_ahead() { return read_ahead_; }
  LayerStats& stats() { return stats_; }

 private:
  explicit AttachedLayer(std::shared_ptr<LayerSource> source)
      : id_(source->map->layer()),
        header_(source->map->header()),
        source_(std::move(source)),
        read_ahead_(header_.chunk_count),
        stats_(header_.image_size) {}

  Status fetch_metadata(const std::string& spool_directory, Deadline deadline);
  /// The known sources but `first`, the one preferred last in front.
  std::vector<std::shared_ptr<LayerSource>> other_sources(const LayerSource& first) const;
  template <typename Find>
  Result<chunkstore::ChunkLocation> find_in_any(Find find);

  const Digest id_;
  const chunkstore::LayerHeader header_;
  mutable std::mutex sources_mutex_;
  std::shared_ptr<LayerSource> source_;
  std::vector<std::weak_ptr<LayerSource>> others_;  // The one preferred last in front.
  std::unique_ptr<MetadataFile> metadata_;
  std::unique_ptr<chunkstore::erofs::Reader> reader_;
  ReadAhead read_ahead_;
  LayerStats stats_;
  std::mutex large_ids_mutex_;
  std::optional<std::vector<uint32_t>> large_ids_;
};

}  // namespace varve::fs
