#include "fs/layer/attached_layer.h"

#include <array>
#include <optional>
#include <set>
#include <vector>

#include "base/file_io.h"
#include "chunkstore/erofs/merged_walk.h"
#include "chunkstore/format/image.h"
#include "fs/fetch/chunk_fetcher.h"

namespace varve::fs {
namespace {

using chunkstore::ChunkLocation;

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

Result<std::vector<uint32_t>> find_large_ids(const chunkstore::erofs::Reader& reader) {
  std::set<uint32_t> ids;
  const chunkstore::erofs::MergedTree tree({&reader});
  VARVE_ASSIGN(const auto root, tree.root());
  VARVE_TRY(chunkstore::erofs::walk_tree(
      tree, root, "", [&](const chunkstore::erofs::WalkStep& step) -> Status {
        VARVE_ASSIGN(const auto inode, tree.inode(step.node));
        for (const uint32_t id : {inode.uid, inode.gid}) {
          if (id >= chunkstore::kLargeIdMin) ids.insert(id);
        }
        if (ids.size() <= chunkstore::kImageIdCountMax) return {};
        return fail(ErrorCode::kUnsupported, "more than " +
                                                 std::to_string(chunkstore::kImageIdCountMax) +
                                                 " user and group ids of 65536 and above");
      }));
  return std::vector<uint32_t>(ids.begin(), ids.end());
}

}  // namespace

Result<std::shared_ptr<AttachedLayer>> AttachedLayer::open(std::shared_ptr<StoreSession> session,
                                                           const Digest& id,
                                                           const std::string& spool_directory,
                                                           Deadline deadline) {
  auto map = chunkstore::LayerMap::open(session->store(), id, spool_directory, deadline);
  if (!map) return fail(std::move(map).error(), "attaching layer " + id.hex());
  std::shared_ptr<AttachedLayer> layer(new AttachedLayer(std::move(session), std::move(*map)));
  Status fetched = layer->fetch_metadata(spool_directory, deadline);
  if (!fetched) {
    return fail(std::move(fetched).error(), "fetching the metadata of layer " + id.hex());
  }
  auto reader = chunkstore::erofs::Reader::open(*layer->metadata_);
  if (!reader) return fail(std::move(reader).error(), "image of layer " + id.hex());
  layer->reader_ = std::make_unique<chunkstore::erofs::Reader>(std::move(*reader));
  return layer;
}

Result<std::vector<uint32_t>> AttachedLayer::large_ids() {
  std::lock_guard lock(large_ids_mutex_);
  if (!large_ids_) {
    auto found = find_large_ids(*reader_);
    if (!found) return fail(std::move(found).error(), "finding the ids of layer " + id().hex());
    large_ids_ = std::move(*found);
  }
  return *large_ids_;
}

Status AttachedLayer::fetch_metadata(const std::string& spool_directory, Deadline deadline) {
  VARVE_ASSIGN(UniqueFd file, open_unlinked_temp(spool_directory));
  std::vector<ChunkLocation> chunks;
  for (uint64_t offset = 0; offset < metadata_bytes();) {
    VARVE_ASSIGN(ChunkLocation location, map_->locate(offset, deadline));
    offset = location.image_offset + location.raw_size;
    chunks.push_back(std::move(location));
  }
  MetadataConsumer consumer(file.get());
  ChunkFetcher fetcher;
  fetcher.fetch({store(), *map_, stats_}, chunks, deadline, consumer);
  if (consumer.first_error()) return tl::unexpected(*consumer.first_error());
  stats_.fetched_chunks.fetch_add(chunks.size(), std::memory_order_relaxed);
  metadata_ = std::make_unique<MetadataFile>(std::move(file), image_bytes(), metadata_bytes());
  return {};
}

}  // namespace varve::fs
