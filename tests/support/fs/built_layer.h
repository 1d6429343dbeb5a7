#pragma once

#include <string>

#include "tests/support/test_layer.h"

namespace varve::test {

/// Packs the tree at `directory` into a layer of `store`, as layer-pack does. Aborts on failure.
///
/// @param chunks_per_pack  How many chunks one pack holds.
TestLayer put_directory(chunkstore::Store& store, const std::string& directory,
                        size_t chunks_per_pack = SIZE_MAX);

/// Fills `directory` with a tree of every kind of thing: small, large and sparse files, noise and
/// text, hard links, symlinks, devices, xattrs, odd modes and times, a directory of `wide_count`
/// files. As root. The same `seed` gives the same tree.
void make_tree(const std::string& directory, uint32_t seed, size_t wide_count = 3000);

/// `bytes` of noise that does not compress.
Bytes make_noise(size_t bytes, uint32_t seed);

/// Compares two trees path by path: type, mode, ids, nlink, size, mtime, rdev, xattrs, targets and
/// content. Returns a line for each difference.
std::vector<std::string> compare_trees(const std::string& expected, const std::string& actual);

}  // namespace varve::test
