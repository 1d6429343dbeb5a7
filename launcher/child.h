#pragma once

#include <signal.h>
#include <sys/ioctl.h>

#include <span>
#include <vector>

#include "launcher/plan.h"

namespace varve::launcher {

/// Everything that the first process of a sandbox needs, prepared before clone3: after it, that
/// process only reads this and makes raw system calls; it allocates nothing.
class ChildContext {
 public:
  ChildContext(const Plan& plan, std::vector<int> join_fds, std::span<char> command_line);

  const Plan& plan;
  const std::vector<int> join_fds;
  /// The memory behind /proc/PID/cmdline, which the sandbox can read and must not learn from.
  const std::span<char> command_line;
  int control = -1;          ///< The child's end of the socket pair.
  sigset_t command_signals;  ///< Signal mask of the command.
  winsize window{};          ///< Of the caller's terminal.

  std::vector<char*> argv;
  /// Ends with room for HOME, if the plan wants one, and the terminating null pointer.
  std::vector<char*> env;
  char home[sizeof("HOME=") + 256] = "HOME=";
  std::vector<const char*> candidates;
};

/// Runs the plan's operations of the child, then PID 1's loop. Called once, in the new process.
[[noreturn]] void run_child(ChildContext& context);

}  // namespace varve::launcher
