#include "fs/cache/memory_cache.h"

#include <gtest/gtest.h>

namespace varve::fs {
namespace {

Digest id_of(int number) {
  return sha256(as_bytes(std::to_string(number)));
}
ChunkBytes bytes_of(size_t size) {
  return std::make_shared<const ChunkBuffer>(size);
}

TEST(MemoryCacheTest, FindsWhatWasInserted) {
  MemoryCache cache(1 << 20);
  EXPECT_EQ(cache.find(id_of(1)), nullptr);
  const ChunkBytes bytes = bytes_of(1000);
  cache.insert(id_of(1), bytes);
  EXPECT_EQ(cache.find(id_of(1)), bytes);
  EXPECT_EQ(cache.bytes_used(), 1000u);
  cache.insert(id_of(1), bytes_of(1000));
  EXPECT_EQ(cache.bytes_used(), 1000u);
}

TEST(MemoryCacheTest, StaysInsideItsBound) {
  MemoryCache cache(32 << 20);
  for (int i = 0; i < 1000; ++i) cache.insert(id_of(i), bytes_of(100'000));
  EXPECT_LE(cache.bytes_used(), uint64_t{32} << 20);
  EXPECT_GT(cache.bytes_used(), uint64_t{24} << 20);
}

TEST(MemoryCacheTest, KeepsWhatIsUsedAndDropsWhatIsNot) {
  MemoryCache cache(1 << 20);
  for (int i = 0; i < 100; ++i) {
    cache.insert(id_of(i), bytes_of(100'000));
    EXPECT_NE(cache.find(id_of(0)), nullptr) << i;
  }
  EXPECT_EQ(cache.find(id_of(50)), nullptr);
  EXPECT_NE(cache.find(id_of(99)), nullptr);
}

TEST(MemoryCacheTest, ReadersKeepWhatIsEvictedUnderThem) {
  MemoryCache cache(1 << 20);
  cache.insert(id_of(0), bytes_of(600'000));
  const ChunkBytes held = cache.find(id_of(0));
  cache.insert(id_of(1), bytes_of(600'000));
  EXPECT_EQ(cache.find(id_of(0)), nullptr);
  EXPECT_EQ(held->size(), 600'000u);
}

TEST(MemoryCacheTest, LeavesOutWhatIsLargerThanAShard) {
  MemoryCache cache(1000);
  cache.insert(id_of(0), bytes_of(1001));
  EXPECT_EQ(cache.find(id_of(0)), nullptr);
  EXPECT_EQ(cache.bytes_used(), 0u);
}

TEST(MemoryCacheTest, CountsWhatBecomesOfChunksThatWereReadAhead) {
  MemoryCache cache(1 << 20);
  const auto counters = std::make_shared<AheadCounters>();
  cache.insert_ahead(id_of(0), bytes_of(100'000), counters);
  EXPECT_TRUE(cache.contains(id_of(0)));
  EXPECT_EQ(counters->used, 0u);
  EXPECT_NE(cache.find(id_of(0)), nullptr);
  EXPECT_NE(cache.find(id_of(0)), nullptr);
  EXPECT_EQ(counters->used, 1u);
  // Two of them fit into the quarter for what nobody asked for.
  for (int i = 1; i < 6; ++i) cache.insert_ahead(id_of(i), bytes_of(100'000), counters);
  EXPECT_EQ(counters->chunks, 6u);
  EXPECT_EQ(counters->wasted, 3u);
  EXPECT_FALSE(cache.contains(id_of(3)));
  EXPECT_TRUE(cache.contains(id_of(4)));
  EXPECT_TRUE(cache.contains(id_of(5)));
  EXPECT_EQ(cache.bytes_used(), 300'000u);
}

TEST(MemoryCacheTest, ReadAheadDropsNothingThatWasAskedForButItsOwnQuarter) {
  MemoryCache cache(1 << 20);
  for (int i = 0; i < 10; ++i) cache.insert(id_of(i), bytes_of(100'000));
  const auto counters = std::make_shared<AheadCounters>();
  for (int i = 100; i < 200; ++i) cache.insert_ahead(id_of(i), bytes_of(100'000), counters);
  int left_count = 0;
  for (int i = 0; i < 10; ++i) left_count += cache.contains(id_of(i)) ? 1 : 0;
  EXPECT_EQ(left_count, 8);
  EXPECT_LE(cache.bytes_used(), uint64_t{1} << 20);
}

}  // namespace
}  // namespace varve::fs
