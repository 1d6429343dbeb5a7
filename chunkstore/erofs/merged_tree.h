#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "chunkstore/erofs/reader.h"

namespace varve::chunkstore::erofs {

/// What one path of the merged tree is. Value type.
struct MergedNode {
  uint8_t type = 0;  ///< As Dirent::type.
  /// Where it is: attributes and content come from the first, which is the topmost layer that has
  /// the path; the others are the directories below it that are merged in. One for other types.
  struct Part {
    uint32_t layer = 0;  ///< 0 is the lowest.
    uint64_t nid = 0;
    auto operator<=>(const Part&) const = default;
  };
  std::vector<Part> parts;

  bool is_directory() const;
  /// Two paths are names of one file when these are equal.
  Part identity() const { return parts.front(); }
};

/// Several layers as OverlayFS would show them: whiteouts (character device 0:0) hide what is
/// below, opaque directories (`trusted.overlay.opaque` = "y") are not merged with what is below,
/// neither is seen. A tree of one layer is the same without the marks. Reads as it goes, keeps
/// nothing. Immutable after construction, thread-safe as Reader is. Source: Linux
/// Documentation/filesystems/overlayfs.rst.
class MergedTree {
 public:
  /// @param layers  Lowest first, at least one; they must outlive the tree.
  explicit MergedTree(std::vector<const Reader*> layers);

  Result<MergedNode> root() const;
  /// Calls `visit` for every visible entry of `directory`, without `.` and `..`, in bytewise order;
  /// an error that it returns ends the listing.
  Status read_directory(
      const MergedNode& directory,
      const std::function<Status(const std::string& name, MergedNode child)>& visit) const;
  /// Nothing when `name` is not visible in `directory`.
  Result<std::optional<MergedNode>> lookup(const MergedNode& directory,
                                           std::string_view name) const;
  /// Follows `path` (components separated by '/', empty ones ignored) without following symlinks.
  /// kNotFound names the component.
  Result<MergedNode> walk(std::string_view path) const;

  /// Sum over the layers: a bound of what their trees can hold.
  uint64_t tree_bytes_max() const;
  const Reader& reader(const MergedNode& node) const { return *layers_[node.identity().layer]; }
  Result<Inode> inode(const MergedNode& node) const;
  /// As a process on the mounted overlay sees them: overlayfs's own attributes are gone and escaped
  /// names (`trusted.overlay.overlay.x`) are unescaped.
  Result<std::map<std::string, std::string>> xattrs(const MergedNode& node) const;

 private:
  Result<bool> is_whiteout(uint32_t layer, const Dirent& dirent) const;
  Result<bool> is_opaque(const MergedNode::Part& part) const;
  /// The node of a name, from its dirents (topmost first); nothing when it is hidden.
  struct Found {
    uint32_t layer = 0;
    Dirent dirent;
  };
  Result<std::optional<MergedNode>> merge(const std::vector<Found>& found) const;

  std::vector<const Reader*> layers_;
};

}  // namespace varve::chunkstore::erofs
