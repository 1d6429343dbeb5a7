#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <set>

#include "base/error.h"
#include "chunkstore/erofs/merged_tree.h"

namespace varve::chunkstore::erofs {

/// The user and group ids ≥ kLargeIdMin that own something in `tree`. Walks all of it.
/// Errors: as walk_tree(); kUnsupported once there are more than `count_max`.
Result<std::set<uint32_t>> find_large_ids(const MergedTree& tree,
                                          size_t count_max = std::numeric_limits<size_t>::max());

}  // namespace varve::chunkstore::erofs
