#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "chunkstore/source/entry.h"

namespace varve::chunkstore {

enum class DirectoryMode {
  kPlain,         ///< Everything below the root is content.
  kOverlayUpper,  ///< An OverlayFS upper directory: its marks become whiteouts and opaque entries.
};

struct DirectoryOptions {
  DirectoryMode mode = DirectoryMode::kPlain;
  /// The overlay was mounted with `userxattr`: its marks are `user.overlay.*`, too.
  bool has_user_marks = false;
  /// Threads that list and inspect; they wait for the disk most of the time.
  size_t thread_count = 8;
  /// Where what is remembered of very large trees goes.
  std::string temp_directory = "/var/tmp";
  /// Use listxattrat(2) where the kernel has it; false is for tests.
  bool allow_list_xattrs_at = true;
};

/// The entries of the tree at `path`, in no particular order, found by several threads and added by
/// the calling one. Never follows a symlink and never leaves the tree; whatever is mounted inside
/// it is part of it. Extended attributes are those this process may see.
///
/// Content is deferred: it is opened when the builder asks, refused when size, mtime, ctime or
/// inode number differ from what was listed, and checked again at its end. Errors name the path
/// (kPermission for an unreadable file, kInvalidArgument for one that changed or for a character
/// device 0:0 in plain mode).
///
/// Upper directories: character device 0:0, or an empty file with `overlay.whiteout`, is a
/// whiteout; `overlay.opaque` = "y" gives kOpaque; `overlay.redirect` and `overlay.metacopy` are
/// kUnsupported (mount with redirect_dir=nofollow,metacopy=off); `overlay.overlay.X` is content
/// named `overlay.X`; every other `overlay.*` attribute is the driver's own note and dropped.
/// Source: Linux Documentation/filesystems/overlayfs.rst.
Result<std::unique_ptr<EntrySource>> open_directory_source(const std::string& path,
                                                           const DirectoryOptions& options);

}  // namespace varve::chunkstore
