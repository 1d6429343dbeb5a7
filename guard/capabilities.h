#pragma once

#include <cstdint>

namespace varve::guard {

/// The capabilities that root inside a sandbox keeps, as a mask of 1 << CAP_x: what package
/// managers need as root of a user namespace, and nothing that reaches devices, mounts, other
/// namespaces or the network's set-up.
extern const uint64_t kSandboxCapabilities;

/// Removes every other capability from the calling thread's bounding, permitted, effective,
/// inheritable and ambient sets. Raw system calls only: safe between fork and exec.
/// @return 0 or an errno value.
int keep_only_capabilities(uint64_t keep_mask);

}  // namespace varve::guard
