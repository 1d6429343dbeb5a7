#pragma once

#include <string>

#include "base/error.h"
#include "base/unique_fd.h"

namespace varve::fs {

/// A FUSE mount at a directory. Owned by one thread; destroying it unmounts quietly.
class MountPoint {
 public:
  /// Mounts: mount(2) as root, fusermount3(1) otherwise. Read-only, nosuid, with
  /// default_permissions and, as root, allow_other and devices.
  ///
  /// @param path  An existing directory, absolute.
  static Result<MountPoint> create(const std::string& path);
  MountPoint(MountPoint&& other) noexcept;
  MountPoint& operator=(MountPoint&&) = delete;
  ~MountPoint();

  /// The /dev/fuse descriptor; once.
  UniqueFd take_fuse_fd() { return std::move(fuse_fd_); }
  const std::string& path() const { return path_; }

  /// Sets the read-ahead of the mount's backing device. Without root it stays the kernel's.
  Status set_readahead_kb(int readahead_kb) const;
  /// Unmounts unless something of it is open or mounted; false when it is.
  Result<bool> unmount_if_unused();
  /// Detaches the mount from the tree at once, in use or not. Idempotent.
  Status unmount();

 private:
  MountPoint(std::string path, UniqueFd fuse_fd, bool by_helper);

  std::string path_;
  UniqueFd fuse_fd_;
  bool by_helper_ = false;
  bool is_mounted_ = true;
};

/// "major:minor" of the topmost mount at `path` in /proc/self/mountinfo, and its type; asks nothing
/// of the filesystem itself. kNotFound when nothing is mounted there.
struct MountedAt {
  std::string device;
  std::string type;
};
Result<MountedAt> find_mount(const std::string& path);

/// Detaches what an earlier server left at `path` (a dead FUSE mount of ours), if anything.
Status remove_stale_mounts(const std::string& path);

}  // namespace varve::fs
