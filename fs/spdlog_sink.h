#pragma once

#include <string>

#include "base/error.h"
#include "fs/log.h"

namespace varve::fs {

/// A sink that writes lines with a time to `path`, or to stderr when it is "". Messages with a key
/// are limited to one in ten seconds a key. A log that cannot be written is dropped, never waited
/// for.
Result<LogSink> make_spdlog_sink(const std::string& path);

}  // namespace varve::fs
