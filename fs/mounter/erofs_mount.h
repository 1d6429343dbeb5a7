#pragma once

#include <string>

#include "base/error.h"
#include "base/unique_fd.h"

/// Mounts of EROFS images, from the file itself or by way of a loop device.
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

/// A free loop device over `image_fd`, read-only, gone with its last user.
///
/// @param dev_fd  A descriptor of /dev.
struct LoopDevice {
  std::string name;  ///< "loop3", relative to /dev.
  UniqueFd fd;
};
Result<LoopDevice> make_loop_device(int dev_fd, int image_fd);

}  // namespace varve::fs::mounter
