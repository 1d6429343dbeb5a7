#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "chunkstore/erofs/reader.h"
#include "chunkstore/read/layer_map.h"
#include "fs/cache/single_flight.h"
#include "fs/fetch/read_ahead.h"
#include "fs/fetch/store_session.h"
#include "fs/layer/metadata_file.h"
#include "fs/stats/layer_stats.h"

namespace varve::fs {

/// One layer, whoever attached it and in however many domains: its map, its metadata region (whole,
/// verified, in a local file without a name) and its counters. Immutable but for the counters;
/// thread-safe.
class AttachedLayer {
 public:
  /// Fetches what attach needs: header, placement, metadata region. Blocks on the store.
  ///
  /// @param session  An opened one: where the layer comes from and its reads run.
  /// @param spool_directory  Where the local files without names lie.
  /// Errors: kNotFound, kCorruption, kTimedOut, … naming the layer.
  static Result<std::shared_ptr<AttachedLayer>> open(std::shared_ptr<StoreSession> session,
                                                     const Digest& id,
                                                     const std::string& spool_directory,
                                                     Deadline deadline);

  const Digest& id() const { return map_->layer(); }
  uint64_t image_bytes() const { return map_->header().image_size; }
  uint64_t metadata_bytes() const { return map_->header().metadata_size; }
  uint64_t stored_bytes() const { return map_->stored_bytes(); }
  const StoreSession& session() const { return *session_; }
  chunkstore::Store& store() { return *session_->store(); }
  chunkstore::LayerMap& map() { return *map_; }
  FetchPool& pool() { return session_->pool(); }
  /// Reads metadata only; never blocks on the store.
  const chunkstore::erofs::Reader& reader() const { return *reader_; }
  /// The user and group ids ≥ chunkstore::kLargeIdMin that own something in the layer, sorted, each
  /// once. The first call walks the tree; never blocks on the store.
  /// Errors: kCorruption; kUnsupported (more than an image could list).
  Result<std::vector<uint32_t>> large_ids();
  MetadataFile& metadata() { return *metadata_; }
  SingleFlight& flights() { return flights_; }
  ReadAhead& read_ahead() { return read_ahead_; }
  LayerStats& stats() { return stats_; }

 private:
  AttachedLayer(std::shared_ptr<StoreSession> session, std::unique_ptr<chunkstore::LayerMap> map)
      : session_(std::move(session)),
        map_(std::move(map)),
        read_ahead_(map_->header().chunk_count),
        stats_(map_->header().image_size) {}

  Status fetch_metadata(const std::string& spool_directory, Deadline deadline);

  std::shared_ptr<StoreSession> session_;
  std::unique_ptr<chunkstore::LayerMap> map_;
  std::unique_ptr<MetadataFile> metadata_;
  std::unique_ptr<chunkstore::erofs::Reader> reader_;
  SingleFlight flights_;
  ReadAhead read_ahead_;
  LayerStats stats_;
  std::mutex large_ids_mutex_;
  std::optional<std::vector<uint32_t>> large_ids_;
};

}  // namespace varve::fs
