#pragma once

#include <functional>
#include <string>

namespace varve::fs {

enum class LogLevel { kInfo, kWarning, kError };

/// Where the daemon's parts report what no caller can be told. Thread-safe.
///
/// @param key  Messages of one key are limited: one in a while is written, with the number of those
///             left out. "" is never limited.
using LogSink =
    std::function<void(LogLevel level, const std::string& key, const std::string& text)>;

}  // namespace varve::fs
