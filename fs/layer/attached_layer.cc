#include "fs/layer/attached_layer.h"

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "base/file_io.h"
#include "chunkstore/erofs/large_ids.h"
#include "chunkstore/format/image.h"
#include "fs/descriptor_reserve.h"

namespace varve::fs {
namespace {

using chunkstore::ChunkLocation;

/// Passes on what a fetch from one store brings, and keeps what that store cannot give.
class FailureKeeper : public ChunkConsumer {
 public:
  struct Failure {
    size_t index;  // The receiver's.
    ChunkLocation location;
    Error error;
  };

  /// @param indexes  The receiver's index of each chunk of the fetch; null when they are the same.
  FailureKeeper(ChunkConsumer& receiver, const std::vector<size_t>* indexes)
      : receiver_(receiver), indexes_(indexes) {}

  std::optional<MutableByteView> begin(size_t index, const ChunkLocation& location) override {
    return receiver_.begin(index_of(index), location);
  }
  void decoded(size_t index, const ChunkLocation& location) override {
    receiver_.decoded(index_of(index), location);
  }
  void damaged(size_t index) override { receiver_.damaged(index_of(index)); }
  void failed(size_t index, const ChunkLocation& location, const Error& error) override {
    failures_.push_back({index_of(index), location, error});
  }
  std::vector<Failure>& failures() { return failures_; }

 private:
  size_t index_of(size_t index) const { return indexes_ == nullptr ? index : (*indexes_)[index]; }

  ChunkConsumer& receiver_;
  const std::vector<size_t>* const indexes_;
  std::vector<Failure> failures_;
};

/// Writes decoded metadata chunks to their place in a file.
class MetadataConsumer : public ChunkConsumer {
 public:
  explicit MetadataConsumer(int fd) : fd_(fd) {}

  std::optional<MutableByteView> begin(size_t index, const ChunkLocation& location) override {
    Bytes& raw = raw_of(index);
    raw.resize(location.raw_size);
    return raw;
  }
  void decoded(size_t index, const ChunkLocation& location) override {
    Status written = pwrite_all(fd_, location.image_offset, raw_of(index));
    if (!written && !first_error_) first_error_ = std::move(written).error();
  }
  void damaged(size_t) override {}
  void failed(size_t, const ChunkLocation&, const Error& error) override {
    if (!first_error_) first_error_ = error;
  }
  const std::optional<Error>& first_error() const { return first_error_; }

 private:
  // Chunks that are decoded together follow one another.
  Bytes& raw_of(size_t index) { return raws_[index % raws_.size()]; }

  int fd_;
  std::array<Bytes, ChunkFetcher::kTogetherCountMax> raws_;
  std::optional<Error> first_error_;
};

}  // namespace

Result<std::shared_ptr<AttachedLayer>> AttachedLayer::open(std::shared_ptr<LayerSource> source,
                                                           const std::string& spool_directory,
                                                           Deadline deadline) {
  std::shared_ptr<AttachedLayer> layer(new AttachedLayer(std::move(source)));
  Status fetched = layer->fetch_metadata(spool_directory, deadline);
  if (!fetched) {
    return fail(std::move(fetched).error(), "fetching the metadata of layer " + layer->id().hex());
  }
  auto reader = chunkstore::erofs::Reader::open(*layer->metadata_);
  if (!reader) return fail(std::move(reader).error(), "image of layer " + layer->id().hex());
  layer->reader_ = std::make_unique<chunkstore::erofs::Reader>(std::move(*reader));
  return layer;
}

std::shared_ptr<LayerSource> AttachedLayer::source() const {
  std::lock_guard lock(sources_mutex_);
  return source_;
}

std::shared_ptr<LayerSource> AttachedLayer::source_in(const chunkstore::Store& store) const {
  const auto first = source();
  if (first->store.get() == &store) return first;
  for (auto& other : other_sources(*first)) {
    if (other->store.get() == &store) return std::move(other);
  }
  return nullptr;
}

void AttachedLayer::prefer(std::shared_ptr<LayerSource> source) {
  std::lock_guard lock(sources_mutex_);
  if (source_ == source) return;
  std::erase_if(others_, [&](const auto& other) {
    const auto known = other.lock();
    return known == nullptr || known == source;
  });
  others_.insert(others_.begin(), source_);
  source_ = std::move(source);
}

std::shared_ptr<LayerSource> AttachedLayer::set_aside(const LayerSource& source) {
  // Another reader may have come before.
  if (auto preferred = this->source(); preferred.get() != &source) return preferred;
  auto others = other_sources(source);
  if (others.empty()) return nullptr;
  prefer(others.front());
  return std::move(others.front());
}

std::vector<std::shared_ptr<LayerSource>> AttachedLayer::other_sources(
    const LayerSource& first) const {
  std::vector<std::shared_ptr<LayerSource>> sources;
  std::lock_guard lock(sources_mutex_);
  if (source_.get() != &first) sources.push_back(source_);
  for (const auto& other : others_) {
    auto source = other.lock();
    if (source != nullptr && source.get() != &first) sources.push_back(std::move(source));
  }
  return sources;
}

template <typename Find>
Result<ChunkLocation> AttachedLayer::find_in_any(Find find) {
  const auto first = source();
  Result<ChunkLocation> found = find(*first->map);
  if (found) return found;
  for (auto& other : other_sources(*first)) {
    if (auto location = find(*other->map)) return location;
  }
  return found;
}

Result<ChunkLocation> AttachedLayer::locate(uint64_t offset, Deadline deadline) {
  return find_in_any([&](chunkstore::LayerMap& map) { return map.locate(offset, deadline); });
}

Result<ChunkLocation> AttachedLayer::chunk(uint64_t index, Deadline deadline) {
  return find_in_any([&](chunkstore::LayerMap& map) { return map.chunk(index, deadline); });
}

void AttachedLayer::fetch(ChunkFetcher& fetcher, const std::shared_ptr<LayerSource>& first,
                          std::span<const ChunkLocation> chunks, Deadline deadline,
                          ChunkConsumer& consumer) {
  FailureKeeper keeper(consumer, nullptr);
  fetcher.fetch({*first->store, *first->map, stats_}, chunks, deadline, keeper);
  auto failures = std::move(keeper.failures());
  if (failures.empty()) return;
  for (auto& other : other_sources(*first)) {
    std::vector<ChunkLocation> locations;
    std::vector<size_t> indexes;
    std::vector<FailureKeeper::Failure> still;
    for (auto& failure : failures) {
      if (auto location = other->map->chunk(failure.location.index, deadline)) {
        locations.push_back(std::move(*location));
        indexes.push_back(failure.index);
      } else {
        still.push_back(std::move(failure));
      }
    }
    FailureKeeper again(consumer, &indexes);
    fetcher.fetch({*other->store, *other->map, stats_}, locations, deadline, again);
    std::ranges::move(again.failures(), std::back_inserter(still));
    failures = std::move(still);
    if (failures.empty()) {
      // It has what the first one lacks, and the next reader need not find that out.
      prefer(std::move(other));
      return;
    }
  }
  for (const auto& failure : failures) {
    consumer.failed(failure.index, failure.location, failure.error);
  }
}

Result<std::vector<uint32_t>> AttachedLayer::large_ids() {
  std::lock_guard lock(large_ids_mutex_);
  if (!large_ids_) {
    auto found = chunkstore::erofs::find_large_ids(chunkstore::erofs::MergedTree({reader_.get()}),
                                                   chunkstore::kImageIdCountMax);
    if (!found) return fail(std::move(found).error(), "finding the ids of layer " + id().hex());
    large_ids_.emplace(found->begin(), found->end());
  }
  return *large_ids_;
}

Status AttachedLayer::fetch_metadata(const std::string& spool_directory, Deadline deadline) {
  VARVE_ASSIGN(UniqueFd file, open_unlinked_temp(spool_directory));
  if (is_reserved_descriptor(file.get())) {
    return fail(ErrorCode::kBusy, "too few descriptors are left for one more layer");
  }
  std::vector<ChunkLocation> chunks;
  for (uint64_t offset = 0; offset < metadata_bytes();) {
    VARVE_ASSIGN(ChunkLocation location, source_->map->locate(offset, deadline));
    offset = location.image_offset + location.raw_size;
    chunks.push_back(std::move(location));
  }
  MetadataConsumer consumer(file.get());
  ChunkFetcher fetcher;
  fetcher.fetch({*source_->store, *source_->map, stats_}, chunks, deadline, consumer);
  if (consumer.first_error()) return tl::unexpected(*consumer.first_error());
  stats_.fetched_chunks.fetch_add(chunks.size(), std::memory_order_relaxed);
  metadata_ = std::make_unique<MetadataFile>(std::move(file), image_bytes(), metadata_bytes());
  return {};
}

}  // namespace varve::fs
