#include "fs/stats/touched_files.h"

#include <sys/stat.h>

#include <algorithm>
#include <unordered_set>

#include "chunkstore/erofs/merged_walk.h"

namespace varve::fs {
namespace {

using chunkstore::erofs::Extent;
using chunkstore::erofs::Inode;
using chunkstore::erofs::Layout;

constexpr uint64_t kPageBytes = TouchedPages::kPageBytes;
// Of all paths: more would not fit the answer that carries them.
constexpr size_t kPathsBytesMax = 32 << 20;
// An entry of a chunk map.
constexpr uint64_t kMapEntryBytesMin = 4;

class Walk {
 public:
  explicit Walk(AttachedLayer& layer)
      : layer_(layer),
        pages_(layer.stats().touched.runs()),
        map_entries_left_(layer.metadata_bytes() / kMapEntryBytesMin) {}

  Result<TouchedFiles> run();

 private:
  Status visit_file(const std::string& path, const Inode& inode);
  Status count_map(const Inode& inode);

  AttachedLayer& layer_;
  PageRuns pages_;  // Touched, and no file's so far.
  uint64_t map_entries_left_;
  std::unordered_set<uint64_t> linked_;  // Inodes with several names that were visited.
  size_t path_bytes_ = 0;
  TouchedFiles result_;
};

// Maps that lie over each other would make work without end.
Status Walk::count_map(const Inode& inode) {
  if (inode.layout != Layout::kChunkBased) return {};
  const uint64_t chunk_bytes = chunkstore::erofs::map_chunk_bytes(inode.layout_word);
  const uint64_t count = inode.size / chunk_bytes + (inode.size % chunk_bytes != 0 ? 1 : 0);
  if (count > map_entries_left_) {
    return fail(ErrorCode::kCorruption,
                "the chunk maps of layer " + layer_.id().hex() + " do not fit its metadata region");
  }
  map_entries_left_ -= count;
  return {};
}

Status Walk::visit_file(const std::string& path, const Inode& inode) {
  if (inode.nlink > 1 && !linked_.insert(inode.nid).second) return {};
  VARVE_TRY(count_map(inode));
  VARVE_ASSIGN(const std::vector<Extent> extents, layer_.reader().extents(inode, 0, inode.size));
  uint64_t page_count = 0;
  for (const Extent& extent : extents) {
    if (!extent.image_offset || extent.size == 0) continue;
    page_count += pages_.take(*extent.image_offset / kPageBytes,
                              (*extent.image_offset + extent.size + kPageBytes - 1) / kPageBytes);
  }
  if (page_count == 0) return {};
  path_bytes_ += path.size();
  if (path_bytes_ > kPathsBytesMax) {
    return fail(ErrorCode::kUnsupported, "the touched files of layer " + layer_.id().hex() +
                                             " have more than " + std::to_string(kPathsBytesMax) +
                                             " bytes of paths");
  }
  result_.files.push_back({path, inode.size, page_count * kPageBytes});
  return {};
}

Result<TouchedFiles> Walk::run() {
  const uint64_t metadata_pages = (layer_.metadata_bytes() + kPageBytes - 1) / kPageBytes;
  result_.metadata_bytes = pages_.take(0, metadata_pages) * kPageBytes;
  const chunkstore::erofs::MergedTree tree({&layer_.reader()});
  VARVE_ASSIGN(const auto root, tree.root());
  VARVE_TRY(walk_tree(tree, root, "", [&](const chunkstore::erofs::WalkStep& step) -> Status {
    VARVE_ASSIGN(const Inode inode, tree.inode(step.node));
    return S_ISREG(inode.mode) ? visit_file(step.path, inode) : Status();
  }));
  result_.other_bytes = pages_.take(0, UINT64_MAX) * kPageBytes;
  std::sort(result_.files.begin(), result_.files.end(),
            [](const TouchedFile& a, const TouchedFile& b) { return a.path < b.path; });
  return std::move(result_);
}

}  // namespace

Result<TouchedFiles> find_touched_files(AttachedLayer& layer) {
  return Walk(layer).run();
}

}  // namespace varve::fs
