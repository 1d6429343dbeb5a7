#pragma once

#include "base/tool_io.h"
#include "fs/daemon.h"

namespace varve::fs {

/// The varvefs command (varvefs(8)). While the process has one thread.
///
/// @param defaults  What the command line starts from; tests put their seams in.
/// @return  The exit status.
int varvefs_main(int argc, const char* const* argv, const ToolIo& io,
                 const DaemonOptions& defaults = {});

}  // namespace varve::fs
