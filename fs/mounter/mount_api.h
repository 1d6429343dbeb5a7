#pragma once

#include <string>

#include "base/error.h"
#include "base/unique_fd.h"

/// The new mount API (fsopen(2) and its kin), which glibc 2.36 declares but whose constants differ
/// between headers.
namespace varve::fs::mounter {

/// A detached, read-only mount of a fresh EROFS superblock.
///
/// @param source    Path of the image or block device, relative to the working directory.
/// @param directio  Ask for one copy of the data in memory instead of two; left out where the
///                  kernel does not know it.
/// Errors: as the kernel says; errno ENOTBLK when it takes block devices only.
Result<UniqueFd> make_erofs_mount(const std::string& source, bool directio);

/// Whether the kernel mounts EROFS from files (Linux 6.12 and newer). Leaves a socket with that
/// name behind, relative to the working directory.
bool can_mount_files(const std::string& socket_name);

/// A detached clone of the mount at `path`.
Result<UniqueFd> clone_mount(const std::string& path);

/// A detached clone of a detached mount that make_erofs_mount() made, in whatever mount namespace.
/// Errors: errno EINVAL before Linux 6.15, which clones attached mounts only.
Result<UniqueFd> clone_detached_mount(int mount_fd);

/// Puts a detached mount at `path`.
Status attach_mount(int mount_fd, const std::string& path);

/// A free loop device over `image_fd`, read-only, gone with its last user.
///
/// @param dev_fd  A descriptor of /dev.
struct LoopDevice {
  std::string name;  ///< "loop3", relative to /dev.
  UniqueFd fd;
};
Result<LoopDevice> make_loop_device(int dev_fd, int image_fd);

}  // namespace varve::fs::mounter
