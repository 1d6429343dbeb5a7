#include "fs/rate_limiter.h"

#include <utility>

namespace varve::fs {
namespace {

constexpr size_t kKeyCountMax = 4096;

}  // namespace

std::optional<uint64_t> RateLimiter::pass(const std::string& key, MonotonicClock::time_point now) {
  std::lock_guard lock(mutex_);
  const auto found = entries_.find(key);
  if (found == entries_.end()) {
    // Keys are forgotten, never refused: a flood of different keys passes rather than hides.
    if (entries_.size() >= kKeyCountMax) entries_.clear();
    entries_.emplace(key, Entry{now, 0});
    return 0;
  }
  Entry& entry = found->second;
  if (now - entry.passed < period_) {
    ++entry.held_back_count;
    return std::nullopt;
  }
  entry.passed = now;
  return std::exchange(entry.held_back_count, 0);
}

}  // namespace varve::fs
