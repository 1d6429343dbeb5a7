#pragma once

#include <memory>
#include <string>

#include "chunkstore/store/file_ops.h"
#include "chunkstore/store/store.h"

namespace varve::chunkstore {

/// Opens the store in directory `path`: objects are files named by their keys, made durable in the
/// order file (fsync) → name (rename without replacing) → directory (fsync), by way of `tmp/`, so
/// that a crash at any point leaves whole objects and perhaps a file in `tmp/`.
///
/// Works on any filesystem with atomic rename or hard links, local or clustered. A deadline is
/// looked at before each operation; a local system call is not interrupted by it.
/// @param ops  Must outlive the store. Errors: as open_store().
Result<std::shared_ptr<Store>> open_file_store(const std::string& path, bool create,
                                               FileOps& ops = FileOps::real());

}  // namespace varve::chunkstore
