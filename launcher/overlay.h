#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "base/error.h"
#include "base/mount_api.h"
#include "base/unique_fd.h"

namespace varve::launcher {

/// What an overlay is mounted from. All mounts are detached ones, borrowed.
struct OverlayLayers {
  std::span<const UniqueFd> lowers;  ///< Lowest first, at least one.
  int upper = -1;                    ///< Its root holds `upper` and `work`; -1: read-only.
  MountOptions options;
  unsigned attributes = 0;             ///< MOUNT_ATTR_*
  std::optional<uint32_t> mounter_id;  ///< Host id of the mounter, see ActAs.
};

/// A detached overlay. Layers are given by descriptor where the kernel takes them so: from Linux
/// 6.15 on, which also takes mounts that are nowhere attached. Otherwise they are attached for the
/// time of the call, in a mount namespace that nobody else sees, and named by path.
///
/// The calling process must have one thread. On success and on failure it is in the mount
/// namespace, root and working directory in which it was.
Result<UniqueFd> mount_overlay(const OverlayLayers& layers);

}  // namespace varve::launcher
