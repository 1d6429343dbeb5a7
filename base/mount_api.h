#pragma once

#include <sys/mount.h>

#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/unique_fd.h"

namespace varve {

// The new mount API (fsopen(2) and its kin) with Results, whose errors carry the kernel's errno.
// Every tree is detached until it is moved somewhere.

using MountOptions = std::vector<std::pair<std::string, std::string>>;

/// Moves the process into a copy of its mount namespace, whose mounts no other one hears of.
/// Refused in a chroot whose root is not a mount.
Status unshare_mounts();
/// Sets options of a context made by fsopen, in order; one with an empty value is a flag.
Status set_mount_options(int context, const MountOptions& options);
/// A new filesystem of `type` with mount `attributes` (MOUNT_ATTR_*).
Result<UniqueFd> new_mount(const std::string& type, const MountOptions& options,
                           unsigned attributes);
/// Creates the superblock of a context made by fsopen and mounts it. The error carries what the
/// filesystem wrote into the context's log.
Result<UniqueFd> create_mount(int context, unsigned attributes);
/// A detached clone of one mount, without what is mounted below it; an empty path means the
/// directory itself. Errors: errno EINVAL for a detached mount before Linux 6.15, which clones
/// attached ones only.
Result<UniqueFd> clone_mount(int directory, const std::string& path);
/// Sets and clears attributes of the mount whose root `mount` is.
Status set_mount_attributes(int mount, mount_attr attributes);
/// Maps the ids of a detached mount through a user namespace.
Status idmap_mount(int mount, int user_namespace);
/// Attaches a detached mount at `path`, relative to `directory`.
Status move_mount_to(int mount, int directory, const std::string& path);

}  // namespace varve
