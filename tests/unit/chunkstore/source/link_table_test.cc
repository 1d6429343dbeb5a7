#include "chunkstore/source/link_table.h"

#include <gtest/gtest.h>

namespace varve::chunkstore {
namespace {

// Several times as many as the table begins with.
constexpr uint64_t kInodeCount = 20'000;
constexpr uint32_t kLinkCount = 3;
constexpr size_t kMemoryCount = 500;

LinkTable::Inode inode(uint64_t i) {
  return {.device = i % 2, .number = i / 2 + 1, .link_count = kLinkCount};
}

TEST(LinkTableTest, KnowsTheFirstNameOfEachInode) {
  LinkTable table("/var/tmp", kMemoryCount);
  for (uint32_t name = 0; name < kLinkCount; ++name) {
    for (uint64_t i = 0; i < kInodeCount; ++i) {
      const std::string text = "d" + std::to_string(name) + "/" + std::to_string(i);
      const auto first = table.add_name(inode(i), text);
      ASSERT_TRUE(first) << first.error().to_string();
      if (name == 0) {
        ASSERT_FALSE(*first) << **first;
      } else {
        ASSERT_EQ(**first, "d0/" + std::to_string(i));
      }
    }
  }
}

TEST(LinkTableTest, ForgetsAnInodeWithItsLastName) {
  for (const size_t memory_count : {size_t{0}, kMemoryCount}) {
    LinkTable table("/var/tmp", memory_count);
    const LinkTable::Inode two{.device = 1, .number = 7, .link_count = 2};
    EXPECT_FALSE(table.add_name(two, "a").value());
    EXPECT_EQ(table.add_name(two, "b").value(), "a");
    // The file was removed, and another one has its number.
    EXPECT_FALSE(table.add_name(two, "c").value());
    EXPECT_EQ(table.add_name(two, "d").value(), "c");
  }
}

TEST(LinkTableTest, FailsWhereItHasNoPlace) {
  LinkTable table("/nonexistent", 0);
  const auto first = table.add_name(inode(0), "a");
  ASSERT_FALSE(first);
  EXPECT_NE(first.error().to_string().find("/nonexistent"), std::string::npos);
}

}  // namespace
}  // namespace varve::chunkstore
