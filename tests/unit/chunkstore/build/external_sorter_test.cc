#include "chunkstore/build/external_sorter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "base/temp_dir.h"

namespace varve::chunkstore {
namespace {

using Record = std::pair<std::string, std::string>;

std::vector<Record> make_records(size_t count) {
  std::vector<Record> records;
  uint64_t state = 42;
  for (size_t i = 0; i < count; ++i) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    std::string key = std::to_string(state >> 50);
    key.append(state >> 60, '\0');
    records.emplace_back(key, std::to_string(i) + std::string((state >> 40) % 300, 'v'));
  }
  return records;
}

std::vector<Record> sorted(const std::vector<Record>& records, size_t memory_bytes,
                           uint64_t* spilled = nullptr) {
  ExternalSorter sorter(memory_bytes, "/var/tmp");
  for (const auto& [key, value] : records) EXPECT_TRUE(sorter.add(as_bytes(key), as_bytes(value)));
  EXPECT_TRUE(sorter.finish());
  EXPECT_EQ(sorter.record_count(), records.size());
  if (spilled != nullptr) *spilled = sorter.spilled_bytes();
  std::vector<Record> result;
  auto cursor = sorter.open();
  EXPECT_TRUE(cursor.has_value());
  while (cursor->valid()) {
    result.emplace_back(as_text(cursor->key()), as_text(cursor->value()));
    EXPECT_TRUE(cursor->next());
  }
  return result;
}

TEST(ExternalSorterTest, SortsByKeyAndKeepsTheOrderOfEqualKeysAtEveryBudget) {
  const auto records = make_records(20'000);
  auto expected = records;
  std::stable_sort(expected.begin(), expected.end(),
                   [](const Record& a, const Record& b) { return a.first < b.first; });
  uint64_t spilled = 0;
  EXPECT_EQ(sorted(records, 1 << 30, &spilled), expected);
  EXPECT_EQ(spilled, 0U);
  // 20 KiB makes some 250 runs, so runs are merged on the way too.
  for (const size_t budget : {size_t{1} << 20, size_t{200} << 10, size_t{20} << 10}) {
    EXPECT_EQ(sorted(records, budget, &spilled), expected) << budget;
    EXPECT_GT(spilled, 0U);
  }
}

TEST(ExternalSorterTest, OpensSeveralCursorsAtOnce) {
  for (const size_t budget : {size_t{1} << 30, size_t{100} << 10}) {
    ExternalSorter sorter(budget, "/var/tmp");
    for (int i = 999; i >= 0; --i) {
      const std::string key = std::to_string(1000 + i);
      ASSERT_TRUE(sorter.add(as_bytes(key), as_bytes(std::string(500, 'x'))));
    }
    ASSERT_TRUE(sorter.finish());
    auto first = sorter.open();
    ASSERT_TRUE(first->next());
    auto second = sorter.open();
    EXPECT_EQ(as_text(first->key()), "1001");
    EXPECT_EQ(as_text(second->key()), "1000");
    ASSERT_TRUE(first->next());
    EXPECT_EQ(as_text(first->key()), "1002");
    EXPECT_EQ(as_text(second->key()), "1000");
  }
}

TEST(ExternalSorterTest, TakesEmptyKeysAndValuesAndRecordsLargerThanItsBlocks) {
  const std::vector<Record> records = {{"b", std::string(3 << 20, 'b')}, {"", ""}, {"a", ""}};
  std::vector<Record> expected = records;
  std::sort(expected.begin(), expected.end());
  EXPECT_EQ(sorted(records, 1 << 30), expected);
  EXPECT_EQ(sorted(records, 1), expected);
  EXPECT_TRUE(sorted({}, 1).empty());
}

TEST(ExternalSorterTest, NamesTheDirectoryWhenItCannotSpill) {
  ExternalSorter sorter(1, "/no/such/directory");
  ASSERT_TRUE(sorter.add(as_bytes("a"), as_bytes("1")));
  const Status status = sorter.add(as_bytes("b"), as_bytes("2"));
  ASSERT_FALSE(status.has_value());
  EXPECT_NE(status.error().to_string().find("/no/such/directory"), std::string::npos);
}

}  // namespace
}  // namespace varve::chunkstore
