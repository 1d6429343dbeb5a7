#pragma once

#include <string>
#include <vector>

#include "base/error.h"

namespace varve::launcher {

/// `varve mount IMAGE DIR`: the image's layers, read-only, at DIR until `varve umount DIR`. The
/// attach is kept in varvefs; its lease is recorded in the run directory.
Status mount_image(const std::vector<std::string>& args);

/// `varve umount DIR`. Errors: kNotFound when DIR was not mounted by mount_image; kBusy while files
/// there are in use.
Status unmount_image(const std::vector<std::string>& args);

}  // namespace varve::launcher
