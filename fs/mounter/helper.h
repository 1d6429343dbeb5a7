#pragma once

#include "fs/mounter/mounter.h"

namespace varve::fs::mounter {

/// The body of the mount helper process: answers requests on `socket` until its other end is
/// closed. Returns the exit status.
int run_helper(int socket, const MounterOptions& options);

}  // namespace varve::fs::mounter
