#pragma once

#include <string>

#include "base/bytes.h"
#include "base/error.h"
#include "base/unique_fd.h"

namespace varve::chunkstore {

/// Enough for every filesystem's O_DIRECT.
inline constexpr size_t kDirectAlignment = 4096;

/// The operating system calls by which a `file://` store changes its directory: the seam where
/// tests cut a write sequence or fill the disk. Paths are relative to `root_fd`. Errors name the
/// path. Thread-safe.
class FileOps {
 public:
  virtual ~FileOps() = default;

  /// A new file, opened for writing; kAlreadyExists when there is one.
  virtual Result<UniqueFd> create_file(int root_fd, const std::string& path);
  virtual Status write(int fd, ByteView bytes);
  /// Whether writes pass by the page cache (O_DIRECT): then they are whole multiples of
  /// kDirectAlignment from memory and at offsets that are such multiples. Fails where the
  /// filesystem has none; some say so (EINVAL) only when written to.
  virtual Status set_direct(int fd, bool is_direct);
  /// fsync(2) of a file made by create_file() under `path`.
  virtual Status sync_file(int fd, const std::string& path);
  /// False when it exists.
  virtual Result<bool> make_dir(int root_fd, const std::string& path);
  /// Gives the file `from` the name `to` and takes `from` away; false when `to` exists (`from`
  /// stays).
  virtual Result<bool> rename_if_absent(int root_fd, const std::string& from,
                                        const std::string& to);
  virtual Status rename_over(int root_fd, const std::string& from, const std::string& to);
  virtual Status remove_file(int root_fd, const std::string& path);
  /// False when it is not empty, or gone.
  virtual Result<bool> remove_dir(int root_fd, const std::string& path);
  virtual Status sync_dir(int root_fd, const std::string& path);

  /// The ones that do just that.
  static FileOps& real();
};

/// openat2(2) below `root_fd` that follows no symlink and leaves the root on no path; O_CLOEXEC
/// added.
Result<UniqueFd> open_beneath(int root_fd, const std::string& path, int flags, mode_t mode = 0);

}  // namespace varve::chunkstore
