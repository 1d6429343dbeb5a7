#pragma once

#include <cstdio>

namespace varve {

/// Where a command-line tool writes. Tests pass temporary files, so a tool runs in-process.
struct ToolIo {
  std::FILE* out = stdout;
  std::FILE* err = stderr;
  /// True when `err` is a terminal: progress bars instead of plain lines.
  bool err_is_terminal = false;
  /// The errno with which writing to `out` first failed, 0 = it did not. stdio forgets it, so those
  /// who write keep it here.
  mutable int out_errno = 0;
};

}  // namespace varve
