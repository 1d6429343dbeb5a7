#pragma once

#include <cstdio>

namespace varve {

/// Where a command-line tool writes. Tests pass temporary files, so a tool runs in-process.
struct ToolIo {
  std::FILE* out = stdout;
  std::FILE* err = stderr;
  /// True when `err` is a terminal: progress bars instead of plain lines.
  bool err_is_terminal = false;
};

}  // namespace varve
