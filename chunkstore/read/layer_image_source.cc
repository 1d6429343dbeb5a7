#include "chunkstore/read/layer_image_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace varve::chunkstore {
namespace {

constexpr uint32_t kFirstWindowBytes = 128 << 10;

bool covers(const ChunkLocation& location, uint64_t offset) {
  return offset >= location.image_offset && offset - location.image_offset < location.raw_size;
}

}  // namespace

Result<std::unique_ptr<LayerImageSource>> LayerImageSource::open(std::shared_ptr<Store> store,
                                                                 const Digest& layer,
                                                                 const std::string& spool_directory,
                                                                 const Options& options) {
  const Deadline deadline =
      options.timeout_ms == 0 ? kNoDeadline : deadline_after_ms(options.timeout_ms);
  VARVE_ASSIGN(auto map, LayerMap::open(store, layer, spool_directory, deadline));
  return std::make_unique<LayerImageSource>(std::move(store), std::move(map), options);
}

LayerImageSource::LayerImageSource(std::shared_ptr<Store> store, std::unique_ptr<LayerMap> map,
                                   const Options& options)
    : map_(std::move(map)), reader_(std::move(store)), options_(options) {}

Status LayerImageSource::read(uint64_t offset, MutableByteView to) {
  if (offset > size() || to.size() > size() - offset) {
    return fail(ErrorCode::kCorruption,
                fmt::format("layer {}: {} bytes wanted at offset {} of an image of {}",
                            map_->layer().hex(), to.size(), offset, size()));
  }
  std::lock_guard lock(mutex_);
  while (!to.empty()) {
    VARVE_ASSIGN(const CachedChunk* const chunk, chunk_at(offset));
    const uint64_t within = offset - chunk->location.image_offset;
    const size_t count = std::min<uint64_t>(to.size(), chunk->raw.size() - within);
    std::copy_n(chunk->raw.begin() + static_cast<ptrdiff_t>(within), count, to.begin());
    to = to.subspan(count);
    offset += count;
  }
  return {};
}

Result<const LayerImageSource::CachedChunk*> LayerImageSource::chunk_at(uint64_t offset) {
  const auto hit = std::ranges::find_if(
      cache_, [&](const CachedChunk& chunk) { return covers(chunk.location, offset); });
  if (hit != cache_.end()) {
    cache_.splice(cache_.begin(), cache_, hit);
    return &cache_.front();
  }
  const Deadline deadline =
      options_.timeout_ms == 0 ? kNoDeadline : deadline_after_ms(options_.timeout_ms);
  VARVE_ASSIGN(const ChunkLocation first, map_->locate(offset, deadline));
  VARVE_ASSIGN(const auto locations, plan_fetch(first, deadline));
  VARVE_ASSIGN(auto chunks, reader_.read_all(*map_, locations, deadline));
  next_index_ = locations.back().index + 1;
  // The wanted chunk ends in front; those read ahead behind it.
  for (size_t i = chunks.size(); i-- > 0;) {
    cached_bytes_ += chunks[i].size();
    cache_.push_front({locations[i], std::move(chunks[i])});
  }
  while (cached_bytes_ > options_.cache_bytes_max && cache_.size() > 1) {
    cached_bytes_ -= cache_.back().raw.size();
    cache_.pop_back();
  }
  return &cache_.front();
}

Result<std::vector<ChunkLocation>> LayerImageSource::plan_fetch(const ChunkLocation& first,
                                                                Deadline deadline) {
  std::vector<ChunkLocation> locations = {first};
  if (first.index != next_index_) {
    window_bytes_ = 0;
    return locations;
  }
  window_bytes_ =
      std::min(std::max(2 * window_bytes_, kFirstWindowBytes), options_.read_ahead_bytes_max);
  uint64_t stored_bytes = first.stored_size;
  uint64_t raw_bytes = first.raw_size;
  for (uint64_t index = first.index + 1; index < map_->header().chunk_count; ++index) {
    VARVE_ASSIGN(const ChunkLocation next, map_->chunk(index, deadline));
    stored_bytes += next.stored_size;
    raw_bytes += next.raw_size;
    // What is read ahead must still be in the cache when its turn comes.
    if (stored_bytes > window_bytes_ || raw_bytes > options_.cache_bytes_max / 2) break;
    if (!are_neighbours(locations.back(), next)) break;
    locations.push_back(next);
  }
  return locations;
}

}  // namespace varve::chunkstore
