#pragma once

#include "base/error.h"
#include "launcher/options.h"

namespace varve::launcher {

/// `varve mount IMAGE DIR`: the image's layers, read-only, at DIR until `varve umount DIR`. The
/// attach is kept in varvefs; its lease is recorded in the run directory.
Status mount_image(const MountSpec& spec);

/// `varve umount DIR`. Errors: kNotFound when DIR was not mounted by mount_image; kBusy while files
/// there are in use.
Status unmount_image(const MountSpec& spec);

}  // namespace varve::launcher
