#include "chunkstore/erofs/large_ids.h"

#include <string>

#include "chunkstore/erofs/merged_walk.h"
#include "chunkstore/format/image.h"

namespace varve::chunkstore::erofs {

Result<std::set<uint32_t>> find_large_ids(const MergedTree& tree, size_t count_max) {
  std::set<uint32_t> ids;
  VARVE_ASSIGN(const auto root, tree.root());
  VARVE_TRY(walk_tree(tree, root, "", [&](const WalkStep& step) -> Status {
    VARVE_ASSIGN(const auto inode, tree.inode(step.node));
    for (const uint32_t id : {inode.uid, inode.gid}) {
      if (id >= kLargeIdMin) ids.insert(id);
    }
    if (ids.size() <= count_max) return {};
    return fail(ErrorCode::kUnsupported, "more than " + std::to_string(count_max) +
                                             " user and group ids of " +
                                             std::to_string(kLargeIdMin) + " and above");
  }));
  return ids;
}

}  // namespace varve::chunkstore::erofs
