#pragma once

#include <linux/filter.h>

#include <span>

namespace varve::guard {

/// The compiled policy of seccomp_policy.h.
std::span<const sock_filter> seccomp_filter();

/// Installs the filter on the calling thread, which must have no_new_privs set or CAP_SYS_ADMIN in
/// its user namespace. Raw system calls only.
/// @return 0 or an errno value.
int install_seccomp_filter();

}  // namespace varve::guard
