#include "chunkstore/erofs/merged_walk.h"

#include <utility>
#include <vector>

#include "base/bytes.h"

namespace varve::chunkstore::erofs {
namespace {

/// A directory entry takes 12 bytes and its name at least one.
constexpr uint64_t kDirentBytesMin = 13;

using Children = std::vector<std::pair<std::string, MergedNode>>;

/// A directory on the way down, and which of its children comes next.
struct Level {
  size_t path_size = 0;  // of the directory's own path
  Children children;
  size_t next = 0;
};

}  // namespace

Status walk_tree(const MergedTree& tree, const MergedNode& start, const std::string& start_path,
                 const std::function<Status(const WalkStep&)>& visit) {
  std::string path = start_path;
  uint64_t entries_left = tree.tree_bytes_max() / kDirentBytesMin;
  std::vector<Level> levels;
  const auto descend = [&](const MergedNode& directory) -> Status {
    Level level{path.size(), {}, 0};
    auto status =
        tree.read_directory(directory, [&](const std::string& name, MergedNode child) -> Status {
          if (entries_left == 0) {
            return fail(ErrorCode::kCorruption,
                        "the tree has more entries than the image can hold");
          }
          --entries_left;
          level.children.emplace_back(name, std::move(child));
          return {};
        });
    if (!status) return fail(std::move(status).error(), "listing " + quoted("/" + path));
    levels.push_back(std::move(level));
    return {};
  };

  VARVE_TRY(visit({path, start, 0}));
  if (start.is_directory()) VARVE_TRY(descend(start));
  while (!levels.empty()) {
    Level& level = levels.back();
    path.resize(level.path_size);
    if (level.next == level.children.size()) {
      levels.pop_back();
      continue;
    }
    const auto [name, node] = std::move(level.children[level.next++]);
    if (!path.empty()) path += '/';
    path += name;
    if (path.size() > kPathBytesMax) {
      return fail(ErrorCode::kCorruption, quoted(std::string_view(path).substr(0, kNameBytesMax)) +
                                              "… is nested too deeply, or in itself");
    }
    VARVE_TRY(visit({path, node, levels.size()}));
    if (node.is_directory()) VARVE_TRY(descend(node));
  }
  return {};
}

}  // namespace varve::chunkstore::erofs
