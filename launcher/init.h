#pragma once

#include "launcher/child.h"
#include "launcher/child_protocol.h"

namespace varve::launcher {

/// PID 1 of a sandbox: starts the command, passes signals on to it, reaps every orphan, reports how
/// the command ended and goes, which makes the kernel kill whatever is left. Raw system calls only.
///
/// @param identity  Whom the command runs as.
/// @param terminal  Slave of the sandbox's pseudo-terminal, or -1.
[[noreturn]] void run_init(ChildContext& context, const MountsMessage& identity, int terminal);

}  // namespace varve::launcher
