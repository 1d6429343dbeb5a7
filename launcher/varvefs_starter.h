#pragma once

#include <string>

#include "base/error.h"
#include "launcher/control_client.h"

namespace varve::launcher {

/// Connects to the varvefs of `run_dir`; when none answers, starts one that lingers a minute after
/// its last use. Callers that meet here at once start one between them: a lock file decides.
///
/// The program is looked for beside this one, in ../libexec/varve and ../sbin from there, then in
/// $PATH. It becomes a session of its own; what it says goes to RUN_DIR/varvefs.log.
/// Errors: kUnavailable, with the last line of that log when it ended or does not answer in time.
Result<ControlClient> connect_or_start_varvefs(const std::string& run_dir);
/// Starts none. Errors: kUnavailable when none answers.
Result<ControlClient> connect_to_varvefs(const std::string& run_dir);

}  // namespace varve::launcher
