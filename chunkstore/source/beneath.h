#pragma once

#include <string>
#include <string_view>

#include "base/error.h"
#include "base/unique_fd.h"

namespace varve::chunkstore {

/// Opens `path` (relative; "" is the root itself) below `root_fd` without following any symlink and
/// without leaving the root, whatever changes meanwhile; paths longer than PATH_MAX are walked in
/// pieces. O_CLOEXEC is added. The error does not name the path. Thread-safe.
/// Source: openat2(2), RESOLVE_BENEATH and RESOLVE_NO_SYMLINKS (kernel 5.6).
Result<UniqueFd> open_beneath(int root_fd, std::string_view path, int flags);

}  // namespace varve::chunkstore
