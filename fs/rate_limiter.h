#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>

#include "base/clock.h"

namespace varve::fs {

/// Lets one message of a key pass in a while and counts the others. Thread-safe.
class RateLimiter {
 public:
  explicit RateLimiter(std::chrono::milliseconds period) : period_(period) {}

  /// How many messages of `key` were held back since the last one that passed, when this one may
  /// pass; nothing when it is held back.
  std::optional<uint64_t> pass(const std::string& key, MonotonicClock::time_point now);

 private:
  struct Entry {
    MonotonicClock::time_point passed;
    uint64_t held_back_count = 0;
  };

  const std::chrono::milliseconds period_;
  std::mutex mutex_;
  std::unordered_map<std::string, Entry> entries_;
};

}  // namespace varve::fs
