#pragma once

#include <functional>
#include <string>

#include "base/error.h"
#include "chunkstore/erofs/merged_tree.h"

namespace varve::chunkstore::erofs {

/// One path of a walk; valid during the visit.
struct WalkStep {
  const std::string& path;  ///< As in Entry::path: relative to the tree's root, "" is the root.
  const MergedNode& node;
  size_t depth = 0;  ///< Below where the walk began.
};

/// Calls `visit` for `start` (whose path is `start_path`) and everything below it: a directory
/// before what it holds, the entries of a directory in bytewise order. An error of `visit` ends the
/// walk.
///
/// A tree with paths of more than kPathBytesMax, or with more entries, than its images could hold
/// if every directory had one parent and its entries to itself is kCorruption: a cycle ends, and so
/// do directories that share their entries. Memory: the names of the directories on the way.
Status walk_tree(const MergedTree& tree, const MergedNode& start, const std::string& start_path,
                 const std::function<Status(const WalkStep&)>& visit);

}  // namespace varve::chunkstore::erofs
