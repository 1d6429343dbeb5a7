#include "chunkstore/erofs/merged_tree.h"

#include <algorithm>
#include <utility>

#include "base/bytes.h"
#include "base/check.h"

namespace varve::chunkstore::erofs {
namespace {

constexpr std::string_view kOverlayPrefix = "trusted.overlay.";
constexpr std::string_view kOverlayEscape = "overlay.";
constexpr std::string_view kOpaqueXattr = "trusted.overlay.opaque";
constexpr uint8_t kDirectoryType = static_cast<uint8_t>(FileType::kDirectory);
constexpr uint8_t kCharDeviceType = static_cast<uint8_t>(FileType::kCharDevice);
constexpr size_t kBatchEntryCount = 256;

bool is_dot_name(std::string_view name) {
  return name == "." || name == "..";
}

/// The entries of one directory of one layer, fetched a batch at a time.
class DirectoryCursor {
 public:
  DirectoryCursor(const Reader& reader, uint32_t layer, Inode directory)
      : reader_(&reader), layer_(layer), directory_(std::move(directory)) {}

  uint32_t layer() const { return layer_; }
  /// Nothing at the end.
  Result<const Dirent*> peek() {
    while (next_ == batch_.size() && !is_at_end_) VARVE_TRY(fill());
    return next_ == batch_.size() ? nullptr : &batch_[next_];
  }
  Dirent take() { return std::move(batch_[next_++]); }

 private:
  Status fill() {
    batch_.clear();
    next_ = 0;
    is_at_end_ = true;
    return reader_->read_directory(directory_, cookie_,
                                   [this](const Dirent& dirent, uint64_t next_cookie) {
                                     if (!is_dot_name(dirent.name)) batch_.push_back(dirent);
                                     cookie_ = next_cookie;
                                     is_at_end_ = batch_.size() < kBatchEntryCount;
                                     return is_at_end_;
                                   });
  }

  const Reader* reader_;
  uint32_t layer_;
  Inode directory_;
  std::vector<Dirent> batch_;
  size_t next_ = 0;
  uint64_t cookie_ = 0;
  bool is_at_end_ = false;
};

}  // namespace

bool MergedNode::is_directory() const {
  return type == kDirectoryType;
}

MergedTree::MergedTree(std::vector<const Reader*> layers) : layers_(std::move(layers)) {
  VARVE_CHECK(!layers_.empty());
}

uint64_t MergedTree::tree_bytes_max() const {
  uint64_t bytes = 0;
  for (const Reader* layer : layers_) bytes += layer->source().tree_bytes_max();
  return bytes;
}

Result<bool> MergedTree::is_whiteout(uint32_t layer, const Dirent& dirent) const {
  if (dirent.type != kCharDeviceType) return false;
  VARVE_ASSIGN(const Inode inode, layers_[layer]->inode(dirent.nid));
  return inode.rdev == 0;
}

Result<bool> MergedTree::is_opaque(const MergedNode::Part& part) const {
  const Reader& reader = *layers_[part.layer];
  VARVE_ASSIGN(const Inode inode, reader.inode(part.nid));
  if (inode.xattr_size == 0) return false;
  VARVE_ASSIGN(const auto xattrs, reader.xattrs(inode));
  const auto found = xattrs.find(std::string(kOpaqueXattr));
  return found != xattrs.end() && found->second == "y";
}

Result<std::optional<MergedNode>> MergedTree::merge(const std::vector<Found>& found) const {
  MergedNode node;
  for (const Found& one : found) {
    VARVE_ASSIGN(const bool is_hiding, is_whiteout(one.layer, one.dirent));
    if (is_hiding) break;
    if (node.parts.empty()) {
      node.type = one.dirent.type;
    } else if (one.dirent.type != kDirectoryType) {
      break;  // a directory above a file hides it, and what is below that too
    }
    node.parts.push_back({one.layer, one.dirent.nid});
    if (!node.is_directory() || &one == &found.back()) break;
    VARVE_ASSIGN(const bool is_end, is_opaque(node.parts.back()));
    if (is_end) break;
  }
  if (node.parts.empty()) return std::optional<MergedNode>();
  return std::optional<MergedNode>(std::move(node));
}

Result<MergedNode> MergedTree::root() const {
  std::vector<Found> found;
  for (size_t i = layers_.size(); i-- > 0;) {
    found.push_back({static_cast<uint32_t>(i), {"", layers_[i]->root_nid(), kDirectoryType}});
  }
  VARVE_ASSIGN(auto node, merge(found));
  return std::move(*node);
}

Status MergedTree::read_directory(
    const MergedNode& directory,
    const std::function<Status(const std::string& name, MergedNode child)>& visit) const {
  std::vector<DirectoryCursor> cursors;
  for (const MergedNode::Part& part : directory.parts) {
    VARVE_ASSIGN(Inode inode, layers_[part.layer]->inode(part.nid));
    cursors.emplace_back(*layers_[part.layer], part.layer, std::move(inode));
  }
  std::vector<Found> found;
  for (;;) {
    const std::string* smallest = nullptr;
    for (DirectoryCursor& cursor : cursors) {
      VARVE_ASSIGN(const Dirent* const dirent, cursor.peek());
      if (dirent != nullptr && (smallest == nullptr || dirent->name < *smallest)) {
        smallest = &dirent->name;
      }
    }
    if (smallest == nullptr) return {};
    const std::string name = *smallest;
    found.clear();
    for (DirectoryCursor& cursor : cursors) {
      VARVE_ASSIGN(const Dirent* const dirent, cursor.peek());
      if (dirent != nullptr && dirent->name == name)
        found.push_back({cursor.layer(), cursor.take()});
    }
    VARVE_ASSIGN(auto node, merge(found));
    if (node) VARVE_TRY(visit(name, std::move(*node)));
  }
}

Result<std::optional<MergedNode>> MergedTree::lookup(const MergedNode& directory,
                                                     std::string_view name) const {
  if (is_dot_name(name)) return std::optional<MergedNode>();
  std::vector<Found> found;
  for (const MergedNode::Part& part : directory.parts) {
    const Reader& reader = *layers_[part.layer];
    VARVE_ASSIGN(const Inode inode, reader.inode(part.nid));
    VARVE_ASSIGN(auto dirent, reader.lookup(inode, name));
    if (dirent) found.push_back({part.layer, std::move(*dirent)});
  }
  return merge(found);
}

Result<MergedNode> MergedTree::walk(std::string_view path) const {
  VARVE_ASSIGN(MergedNode node, root());
  for (size_t start = 0; start < path.size();) {
    const size_t slash = std::min(path.find('/', start), path.size());
    const std::string_view component = path.substr(start, slash - start);
    if (!component.empty()) {
      if (!node.is_directory()) {
        return fail(ErrorCode::kNotFound, quoted(path.substr(0, start)) + " is no directory");
      }
      VARVE_ASSIGN(auto child, lookup(node, component));
      if (!child) return fail(ErrorCode::kNotFound, "there is no " + quoted(path.substr(0, slash)));
      node = std::move(*child);
    }
    start = slash + 1;
  }
  return node;
}

Result<Inode> MergedTree::inode(const MergedNode& node) const {
  return reader(node).inode(node.identity().nid);
}

Result<std::map<std::string, std::string>> MergedTree::xattrs(const MergedNode& node) const {
  VARVE_ASSIGN(const Inode found, inode(node));
  std::map<std::string, std::string> seen;
  if (found.xattr_size == 0) return seen;
  VARVE_ASSIGN(auto stored, reader(node).xattrs(found));
  for (auto& [name, value] : stored) {
    if (!name.starts_with(kOverlayPrefix)) {
      seen.emplace(name, std::move(value));
      continue;
    }
    const std::string_view rest = std::string_view(name).substr(kOverlayPrefix.size());
    if (!rest.starts_with(kOverlayEscape)) continue;
    seen.emplace(std::string(kOverlayPrefix) + std::string(rest.substr(kOverlayEscape.size())),
                 std::move(value));
  }
  return seen;
}

}  // namespace varve::chunkstore::erofs
