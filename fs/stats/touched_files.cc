#include "fs/stats/touched_files.h"

#include <sys/stat.h>

#include <algorithm>

namespace varve::fs {
namespace {

using chunkstore::erofs::Dirent;
using chunkstore::erofs::Extent;
using chunkstore::erofs::Inode;

constexpr uint64_t kPageBytes = TouchedPages::kPageBytes;
// A compact EROFS inode.
constexpr uint64_t kInodeBytesMin = 32;

class Walk {
 public:
  explicit Walk(AttachedLayer& layer)
      : layer_(layer), counted_(layer.image_bytes() / kPageBytes + 1) {}

  Result<TouchedFiles> run();

 private:
  struct Directory {
    std::string path;
    Inode inode;
  };

  Status visit_directory(const Directory& directory, std::vector<Directory>& pending);
  Status visit_file(const std::string& path, const Inode& inode);
  uint64_t count_pages(uint64_t first, uint64_t end);

  AttachedLayer& layer_;
  std::vector<bool> counted_;
  TouchedFiles result_;
};

// Touched pages of [first, end) that no file had before.
uint64_t Walk::count_pages(uint64_t first, uint64_t end) {
  uint64_t count = 0;
  for (uint64_t page = first; page < std::min<uint64_t>(end, counted_.size()); ++page) {
    if (counted_[page] || !layer_.stats().touched.contains(page)) continue;
    counted_[page] = true;
    ++count;
  }
  return count;
}

Status Walk::visit_file(const std::string& path, const Inode& inode) {
  VARVE_ASSIGN(const std::vector<Extent> extents, layer_.reader().extents(inode, 0, inode.size));
  uint64_t page_count = 0;
  for (const Extent& extent : extents) {
    if (!extent.image_offset || extent.size == 0) continue;
    page_count += count_pages(*extent.image_offset / kPageBytes,
                              (*extent.image_offset + extent.size + kPageBytes - 1) / kPageBytes);
  }
  if (page_count > 0) result_.files.push_back({path, inode.size, page_count * kPageBytes});
  return {};
}

Status Walk::visit_directory(const Directory& directory, std::vector<Directory>& pending) {
  std::vector<Directory> children;
  Status failure;
  VARVE_TRY(layer_.reader().read_directory(directory.inode, 0, [&](const Dirent& dirent, uint64_t) {
    if (dirent.name == "." || dirent.name == "..") return true;
    auto inode = layer_.reader().inode(dirent.nid);
    if (!inode) {
      failure = tl::unexpected(std::move(inode).error());
      return false;
    }
    std::string path = directory.path.empty() ? dirent.name : directory.path + "/" + dirent.name;
    if (S_ISDIR(inode->mode)) {
      children.push_back({std::move(path), std::move(*inode)});
    } else if (S_ISREG(inode->mode)) {
      failure = visit_file(path, *inode);
    }
    return failure.has_value();
  }));
  VARVE_TRY(std::move(failure));
  // Taken from the back, so the first child is visited first.
  std::move(children.rbegin(), children.rend(), std::back_inserter(pending));
  return {};
}

Result<TouchedFiles> Walk::run() {
  const uint64_t metadata_pages = (layer_.metadata_bytes() + kPageBytes - 1) / kPageBytes;
  result_.metadata_bytes = count_pages(0, metadata_pages) * kPageBytes;
  const auto& reader = layer_.reader();
  VARVE_ASSIGN(Inode root, reader.inode(reader.root_nid()));
  std::vector<Directory> pending;
  pending.push_back({"", std::move(root)});
  // A tree has fewer directories than its metadata region has inodes; more means a cycle.
  const uint64_t directory_count_max = layer_.metadata_bytes() / kInodeBytesMin + 1;
  for (uint64_t count = 0; !pending.empty(); ++count) {
    if (count + pending.size() > directory_count_max) {
      return fail(ErrorCode::kCorruption,
                  "the tree of layer " + layer_.id().hex() + " has a cycle");
    }
    const Directory directory = std::move(pending.back());
    pending.pop_back();
    VARVE_TRY(visit_directory(directory, pending));
  }
  result_.other_bytes = count_pages(0, counted_.size()) * kPageBytes;
  std::sort(result_.files.begin(), result_.files.end(),
            [](const TouchedFile& a, const TouchedFile& b) { return a.path < b.path; });
  return std::move(result_);
}

}  // namespace

Result<TouchedFiles> find_touched_files(AttachedLayer& layer) {
  return Walk(layer).run();
}

}  // namespace varve::fs
