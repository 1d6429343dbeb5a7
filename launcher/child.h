#pragma once

#include <signal.h>
#include <sys/ioctl.h>

#include <span>
#include <vector>

#include "launcher/plan.h"

namespace varve::launcher {

/// Everything that the first process of a sandbox needs, prepared before clone3: after it, that
/// process only reads this and makes raw system calls.
struct ChildContext {
  const std::vector<Operation>& operations;  ///< Of begin_plan(): without the texts below.
  /// The memory behind /proc/PID/cmdline, which the sandbox can read and must not learn from.
  const std::span<char> command_line;
  int control = -1;            ///< The child's end of the socket pair.
  sigset_t command_signals{};  ///< Signal mask of the command.
  winsize window{};            ///< Of the caller's terminal.

  // Received with the mounts. The lists end with a null pointer.
  const char* hostname = nullptr;
  const char* workdir = nullptr;
  char** argv = nullptr;
  char** env = nullptr;
  char** candidates = nullptr;  ///< Paths tried in turn.
  char home[sizeof("HOME=") + 256] = "HOME=";
};

/// Runs the plan's operations of the child, then PID 1's loop. Called once, in the new process,
/// which was born with every signal blocked.
[[noreturn]] void run_child(ChildContext& context);

}  // namespace varve::launcher
