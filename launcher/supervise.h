#pragma once

#include <signal.h>

#include <functional>
#include <optional>

#include "base/error.h"
#include "launcher/host_side.h"

namespace varve::launcher {

/// Signals that `varve run` passes on to its command; the set is blocked in the caller.
sigset_t forwarded_signals();

/// How a sandbox ended.
struct Outcome {
  std::optional<int> wait_status;  ///< Of the command; empty when it was never executed.
  int exec_errno = 0;              ///< Why not.
  uint64_t ready_ns = 0;           ///< CLOCK_MONOTONIC of the successful exec.
};

/// Watches a started sandbox to its end: passes signals on, relays the terminal, collects the
/// report, reaps the first process.
///
/// @param on_ended  Called once, when the command has ended and the kernel begins to kill what else
///                  is left of the sandbox, which takes as long as some work of the caller's.
/// Errors: a set-up operation failed in the child; or the sandbox was killed from outside without
/// a word (kCancelled), which is no outcome of the command.
Result<Outcome> supervise(const Plan& plan, StartedSandbox& sandbox,
                          const std::function<void()>& on_ended);

}  // namespace varve::launcher
