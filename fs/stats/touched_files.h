#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fs/layer/attached_layer.h"

namespace varve::fs {

struct TouchedFile {
  std::string path;  ///< Relative to the layer's root, bytes as they are.
  uint64_t size = 0;
  uint64_t touched_bytes = 0;
};

/// Which files the touched pages of a layer belong to.
struct TouchedFiles {
  std::vector<TouchedFile> files;  ///< With at least one touched page, in the order of paths.
  uint64_t metadata_bytes = 0;     ///< Touched pages of the metadata region.
  uint64_t other_bytes = 0;        ///< Touched pages that no file of the tree has.
};

/// Walks the layer's tree. Identical files share pages: those count for one of them.
/// Cost: one pass over the metadata region, which is not trusted, and by the runs of touched pages;
/// reads no data. Errors: kCorruption;
/// kUnsupported (more than 32 MiB of paths).
Result<TouchedFiles> find_touched_files(AttachedLayer& layer);

}  // namespace varve::fs
