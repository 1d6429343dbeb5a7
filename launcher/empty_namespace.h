#pragma once

#include <sys/types.h>

#include <string>

#include "base/error.h"
#include "base/unique_fd.h"

namespace varve::launcher {

// What lies at the root of the empty namespace, for masks and for /sys.
inline constexpr char kEmptyFileName[] = "empty-file";
inline constexpr char kEmptyDirectoryName[] = "empty-directory";
inline constexpr char kSysfsName[] = "sysfs";

/// Moves the calling (single-threaded) process into a mount namespace of its own whose root is a
/// read-only tmpfs with nothing but `proc`, `sys` and the entries above. Sandboxes are cloned from
/// there, so that they hold no mount of the host: none to reach, and none kept busy.
///
/// Paths of the host cannot be used afterwards; descriptors can. Where the root mount is itself the
/// root of its namespace (in most containers) the host's tree stays below the tmpfs, private.
Status enter_empty_namespace();

/// The same by a namespace that another process made so and that varvefs kept: nobody changes it,
/// because sandboxes get a copy and the host's side only makes detached mounts.
Status enter_empty_namespace(int namespace_fd);

/// What varvefs keeps it under: it differs where the content does, which depends on the caller's
/// pid namespace, too.
std::string empty_namespace_name();

/// The one that the varvefs of `run_dir`, process `varvefs_pid`, keeps; empty when it keeps none.
/// That process must be known to live, or the number may be another's by now.
UniqueFd open_kept_namespace(const std::string& run_dir, pid_t varvefs_pid);

}  // namespace varve::launcher
