#include "chunkstore/read/stats.h"

#include <algorithm>
#include <map>
#include <memory>
#include <unordered_map>
#include <utility>

#include "chunkstore/format/keys.h"
#include "chunkstore/read/image_store.h"
#include "chunkstore/read/layer_map.h"

namespace varve::chunkstore {
namespace {

/// Interned sets of images: few differ, so a chunk holds a number. Set 0 is empty.
class ImageSets {
 public:
  ImageSets() { sets_.emplace_back(); }

  /// The set with `image` added; images come in rising order.
  uint32_t with(uint32_t set, uint32_t image) {
    if (!sets_[set].empty() && sets_[set].back() == image) return set;
    const auto [entry, is_new] =
        with_.try_emplace({set, image}, static_cast<uint32_t>(sets_.size()));
    if (is_new) {
      std::vector<uint32_t> images = sets_[set];
      images.push_back(image);
      sets_.push_back(std::move(images));
    }
    return entry->second;
  }
  const std::vector<uint32_t>& images(uint32_t set) const { return sets_[set]; }
  size_t count() const { return sets_.size(); }

 private:
  std::vector<std::vector<uint32_t>> sets_;
  std::map<std::pair<uint32_t, uint32_t>, uint32_t> with_;
};

struct SeenChunk {
  uint32_t raw_size = 0;
  uint32_t stored_size = 0;
  uint32_t set = 0;
};

struct ImageChunk {
  Digest id;
  uint32_t raw_size = 0;
  uint32_t stored_size = 0;
};

struct SetSums {
  uint64_t chunk_count = 0;
  uint64_t raw_bytes = 0;
  uint64_t stored_bytes = 0;
};

class StatsCollector {
 public:
  StatsCollector(std::shared_ptr<Store> store, const std::string& spool_directory)
      : store_(std::move(store)), images_(store_), spool_directory_(spool_directory) {}

  Result<StoreStats> run();

 private:
  Status count_objects();
  Status read_image(const Digest& id);
  Result<ImageStats> read_layers(const StoredImage& image);
  Result<uint64_t> read_layer(const Digest& layer);
  void sum_up();

  const std::shared_ptr<Store> store_;
  const ImageStore images_;
  const std::string& spool_directory_;
  StoreStats stats_;
  ImageSets sets_;
  std::unordered_map<Digest, SeenChunk, DigestHash> chunks_;
  std::vector<ImageChunk> image_chunks_;  // of the image that is being read
};

Result<StoreStats> StatsCollector::run() {
  VARVE_TRY(count_objects());
  VARVE_ASSIGN(const auto ids, images_.images(kNoDeadline));
  for (const Digest& id : ids) VARVE_TRY(read_image(id));
  VARVE_ASSIGN(const auto refs, images_.refs(kNoDeadline, &stats_.damaged_refs));
  stats_.ref_count = refs.size();
  for (const StoredRef& ref : refs) {
    const auto image = std::ranges::find(stats_.images, ref.image, &ImageStats::id);
    if (image != stats_.images.end()) image->refs.push_back(ref.name.to_string());
  }
  sum_up();
  return std::move(stats_);
}

Status StatsCollector::count_objects() {
  const auto count = [&](std::string_view prefix, uint64_t& object_count, uint64_t& bytes) {
    return store_->list(
        prefix,
        [&](const std::string& key, const ObjectInfo& info) -> Status {
          // The pointer to the placement in force lies beside the placements.
          if (!digest_of_key(key)) return {};
          ++object_count;
          bytes += info.size;
          return {};
        },
        kNoDeadline);
  };
  VARVE_TRY(count("packs/", stats_.pack_count, stats_.pack_bytes));
  VARVE_TRY(count("layers/", stats_.layer_count, stats_.layer_bytes));
  return count("placements/", stats_.placement_count, stats_.placement_bytes);
}

/// Counts the image, unless it is deleted before all of it has been read.
Status StatsCollector::read_image(const Digest& id) {
  const auto read = [&]() -> Result<ImageStats> {
    VARVE_ASSIGN(const StoredImage image, images_.image(id, kNoDeadline));
    return read_layers(image);
  };
  image_chunks_.clear();
  auto image = read();
  if (!image && image.error().code() == ErrorCode::kNotFound && is_gone(*store_, image_key(id))) {
    return {};
  }
  if (!image) return tl::unexpected(std::move(image).error());
  const auto index = static_cast<uint32_t>(stats_.images.size());
  stats_.images.push_back(std::move(*image));
  for (const ImageChunk& found : image_chunks_) {
    SeenChunk& chunk = chunks_[found.id];
    // Two placements may hold it in two forms; the first one seen counts.
    if (chunk.raw_size == 0) chunk = {found.raw_size, found.stored_size, 0};
    chunk.set = sets_.with(chunk.set, index);
  }
  return {};
}

Result<ImageStats> StatsCollector::read_layers(const StoredImage& image) {
  ImageStats stats;
  stats.id = image.id;
  stats.layer_count = image.image.layers.size();
  std::map<Digest, uint64_t> bytes_of_layer;  // of those read: one may come several times
  for (const Digest& layer : image.image.layers) {
    const auto [known, is_new] = bytes_of_layer.try_emplace(layer, 0);
    if (is_new) {
      VARVE_ASSIGN(known->second, read_layer(layer));
    }
    stats.image_bytes += known->second;
  }
  return stats;
}

/// Adds the layer's chunks to those of the image; returns the size of its own image.
Result<uint64_t> StatsCollector::read_layer(const Digest& layer) {
  VARVE_ASSIGN(const auto map, LayerMap::open(store_, layer, spool_directory_, kNoDeadline));
  for (uint64_t i = 0; i < map->header().chunk_count; ++i) {
    VARVE_ASSIGN(const ChunkLocation location, map->chunk(i, kNoDeadline));
    image_chunks_.push_back({location.id, location.raw_size, location.stored_size});
  }
  return map->header().image_size;
}

void StatsCollector::sum_up() {
  std::vector<SetSums> sums(sets_.count());
  for (const auto& [id, chunk] : chunks_) {
    SetSums& sum = sums[chunk.set];
    ++sum.chunk_count;
    sum.raw_bytes += chunk.raw_size;
    sum.stored_bytes += chunk.stored_size;
  }
  std::map<std::pair<size_t, size_t>, uint64_t> shared;
  for (uint32_t set = 0; set < sums.size(); ++set) {
    const SetSums& sum = sums[set];
    if (sum.chunk_count == 0) continue;
    const std::vector<uint32_t>& images = sets_.images(set);
    stats_.chunk_count += sum.chunk_count;
    stats_.raw_bytes += sum.raw_bytes;
    stats_.stored_bytes += sum.stored_bytes;
    for (size_t i = 0; i < images.size(); ++i) {
      ImageStats& image = stats_.images[images[i]];
      image.chunk_count += sum.chunk_count;
      image.raw_bytes += sum.raw_bytes;
      image.stored_bytes += sum.stored_bytes;
      if (images.size() == 1) image.exclusive_bytes += sum.stored_bytes;
      for (size_t j = i + 1; j < images.size(); ++j) {
        shared[{images[i], images[j]}] += sum.stored_bytes;
      }
    }
  }
  for (const auto& [pair, bytes] : shared) {
    stats_.shared.push_back({pair.first, pair.second, bytes});
  }
  stats_.image_count = stats_.images.size();
  for (const ImageStats& image : stats_.images) stats_.image_bytes += image.image_bytes;
}

}  // namespace

Result<StoreStats> collect_stats(std::shared_ptr<Store> store, const std::string& spool_directory) {
  return StatsCollector(std::move(store), spool_directory).run();
}

}  // namespace varve::chunkstore
