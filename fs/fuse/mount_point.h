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
  /// Whether something of it is open or mounted, as far as this can be told without unmounting it:
  /// true only when it is.
  bool is_in_use() const;
  /// Unmounts unless something of it is open or mounted; false when it is, and where somebody else
  /// has unmounted it.
  Result<bool> unmount_if_unused();
  /// Detaches the mount from the tree at once, in use or not. Idempotent.
  Status unmount();

 private:
  MountPoint(std::string path, UniqueFd parent_fd, UniqueFd fuse_fd, bool by_helper);

  std::string place() const;

  std::string path_;
  UniqueFd parent_fd_;
  UniqueFd fuse_fd_;
  bool by_helper_ = false;
  bool is_mounted_ = true;
};

/// `path` without symbolic links, as the kernel names what is mounted there. What does not exist
/// yet stays as it is; asks nothing of what is mounted.
std::string resolved_mount_point(const std::string& path);

/// "major:minor" of the topmost mount at `path` in /proc/self/mountinfo, and its type; asks nothing
/// of the filesystem itself. kNotFound when nothing is mounted there.
struct MountedAt {
  std::string device;
  std::string type;
};
Result<MountedAt> find_mount(const std::string& path);

/// Detaches what an earlier server left at `path` (a dead FUSE mount of ours), if anything. kBusy
/// when something else is mounted there, or one of ours that is still served.
Status remove_stale_mounts(const std::string& path);

}  // namespace varve::fs
