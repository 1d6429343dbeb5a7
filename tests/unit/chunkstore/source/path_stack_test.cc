#include "chunkstore/source/path_stack.h"

#include <gtest/gtest.h>

#include <random>

namespace varve::chunkstore {
namespace {

constexpr size_t kMemoryBytes = 4096;

TEST(PathStackTest, GivesBackWhatIsOnDiskInTheSameOrder) {
  PathStack stack("/var/tmp", kMemoryBytes);
  std::vector<std::string> expected;
  std::mt19937_64 random(1);
  // More often up than down at first, then down to the last one.
  for (size_t step = 0; step < 40'000; ++step) {
    if (random() % 100 < (step < 20'000 ? 60u : 40u) || expected.empty()) {
      expected.push_back("d/" + std::to_string(random()) + std::string(random() % 200, 'x'));
      ASSERT_TRUE(stack.push(expected.back()));
    } else {
      ASSERT_EQ(stack.pop().value(), expected.back());
      expected.pop_back();
    }
    ASSERT_EQ(stack.empty(), expected.empty());
  }
  for (; !expected.empty(); expected.pop_back()) ASSERT_EQ(stack.pop().value(), expected.back());
  EXPECT_TRUE(stack.empty());
}

TEST(PathStackTest, HoldsPathsThatAreLongerThanItsMemory) {
  PathStack stack("/var/tmp", kMemoryBytes);
  const std::string longest(3 * kMemoryBytes, 'x');
  for (size_t i = 0; i < 8; ++i) ASSERT_TRUE(stack.push(longest + std::to_string(i)));
  for (size_t i = 8; i-- > 0;) EXPECT_EQ(stack.pop().value(), longest + std::to_string(i));
}

TEST(PathStackTest, FailsWhereNothingCanBeSpilled) {
  PathStack stack("/nonexistent", kMemoryBytes);
  Status status;
  for (size_t i = 0; status && i < kMemoryBytes; ++i) status = stack.push("directory");
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code(), ErrorCode::kNotFound);
  EXPECT_NE(status.error().to_string().find("/nonexistent"), std::string::npos);
}

}  // namespace
}  // namespace varve::chunkstore
