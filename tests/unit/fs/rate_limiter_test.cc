#include "fs/rate_limiter.h"

#include <gtest/gtest.h>

namespace varve::fs {
namespace {

using std::chrono::milliseconds;

TEST(RateLimiterTest, PassesOneInAPeriodAndCountsTheOthers) {
  RateLimiter limiter(milliseconds(100));
  const MonotonicClock::time_point start;
  EXPECT_EQ(limiter.pass("a", start), 0u);
  EXPECT_EQ(limiter.pass("a", start + milliseconds(1)), std::nullopt);
  EXPECT_EQ(limiter.pass("a", start + milliseconds(99)), std::nullopt);
  EXPECT_EQ(limiter.pass("b", start + milliseconds(99)), 0u);
  EXPECT_EQ(limiter.pass("a", start + milliseconds(100)), 2u);
  EXPECT_EQ(limiter.pass("a", start + milliseconds(250)), 0u);
}

TEST(RateLimiterTest, AFloodOfKeysPasses) {
  RateLimiter limiter(milliseconds(100));
  for (int i = 0; i < 10'000; ++i) {
    EXPECT_TRUE(limiter.pass(std::to_string(i), MonotonicClock::time_point()));
  }
}

}  // namespace
}  // namespace varve::fs
