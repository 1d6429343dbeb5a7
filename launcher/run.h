#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/tool_io.h"

namespace varve::launcher {

// Exit statuses of `varve run` beside the command's own, as in other container tools.
inline constexpr int kExitVarveFailed = 125;
inline constexpr int kExitNotExecutable = 126;
inline constexpr int kExitNotFound = 127;

/// The `varve` command. Must be called from a single-threaded process; `varve run` leaves it in
/// another mount namespace.
///
/// @param command_line  The memory of argv, which a sandbox's first process overwrites.
/// @return the exit status.
int varve_main(const std::vector<std::string>& args, ToolIo& io, std::span<char> command_line);

}  // namespace varve::launcher
