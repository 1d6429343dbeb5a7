#pragma once

#include <fcntl.h>

#include <string>

#include "base/error.h"

namespace varve {

/// rm -rf of `path` below `directory` for trees that their writer may have made hostile: any depth,
/// any names, any modes. Directories below the first level are moved up before they are emptied, so
/// that two descriptors and no long path are ever needed; names are held one at a time.
/// Symlinks are removed, never followed, and what is mounted in the tree is an error (EXDEV or
/// EBUSY) and stays. Nothing there is not an error.
Status remove_tree_at(int directory, const std::string& path);

inline Status remove_tree(const std::string& path) {
  return remove_tree_at(AT_FDCWD, path);
}

}  // namespace varve
