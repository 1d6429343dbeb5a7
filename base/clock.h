#pragma once

#include <time.h>

#include <chrono>
#include <cstdint>

namespace varve {

/// CLOCK_MONOTONIC; deadlines are absolute on it.
using MonotonicClock = std::chrono::steady_clock;
using Deadline = MonotonicClock::time_point;

inline Deadline deadline_after_ms(int64_t timeout_ms) {
  return MonotonicClock::now() + std::chrono::milliseconds(timeout_ms);
}
/// Never passes.
inline constexpr Deadline kNoDeadline = Deadline::max();

inline uint64_t monotonic_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000ULL + static_cast<uint64_t>(now.tv_nsec);
}

}  // namespace varve
