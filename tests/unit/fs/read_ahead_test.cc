#include "fs/fetch/read_ahead.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

namespace varve::fs {
namespace {

constexpr uint64_t kChunkCount = 10'000;
constexpr uint64_t kDistanceMax = 64;

// Reads chunks `first` … `last` one by one; adds what is brought to `ahead`.
void walk(ReadAhead& read_ahead, uint64_t first, uint64_t last, std::set<uint64_t>& ahead,
          uint64_t distance_max = kDistanceMax) {
  for (uint64_t chunk = first; chunk <= last; ++chunk) {
    const ChunkRange range = read_ahead.on_read(chunk, chunk, distance_max);
    for (uint64_t i = 0; i < range.count; ++i) {
      EXPECT_TRUE(ahead.insert(range.first + i).second) << "asked for twice";
    }
  }
}

TEST(ReadAheadTest, FollowsAReaderAfterAFewChunksInARow) {
  ReadAhead read_ahead(kChunkCount);
  for (uint64_t chunk = 100; chunk < 103; ++chunk) {
    EXPECT_EQ(read_ahead.on_read(chunk, chunk, kDistanceMax), ChunkRange{});
  }
  EXPECT_FALSE(read_ahead.is_wanted(104));
  EXPECT_EQ(read_ahead.on_read(103, 103, kDistanceMax), (ChunkRange{104, 2}));
  EXPECT_TRUE(read_ahead.is_wanted(104));
  EXPECT_TRUE(read_ahead.is_wanted(105));
  EXPECT_FALSE(read_ahead.is_wanted(106));
}

TEST(ReadAheadTest, ManyReadsOfOneChunkAreNotARow) {
  ReadAhead read_ahead(kChunkCount);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(read_ahead.on_read(7, 7, kDistanceMax), ChunkRange{});
}

TEST(ReadAheadTest, OneLargeReadIsNotARow) {
  ReadAhead read_ahead(kChunkCount);
  EXPECT_EQ(read_ahead.on_read(10, 30, kDistanceMax), ChunkRange{});
  EXPECT_GT(read_ahead.on_read(31, 51, kDistanceMax).count, 0u);
}

TEST(ReadAheadTest, BringsEveryChunkOnceAndStaysBeforeTheReader) {
  ReadAhead read_ahead(kChunkCount);
  std::set<uint64_t> ahead;
  for (uint64_t chunk = 0; chunk < 2000; ++chunk) {
    walk(read_ahead, chunk, chunk, ahead);
    if (ahead.empty()) continue;
    EXPECT_LE(*ahead.rbegin(), chunk + std::min(kDistanceMax, (chunk + 1) / 2));
    EXPECT_GE(*ahead.rbegin(), chunk) << "the reader overtook it";
  }
  EXPECT_EQ(ahead.size(), *ahead.rbegin() - ReadAhead::kProvenCount + 1);
}

TEST(ReadAheadTest, EndsWithTheLayer) {
  ReadAhead read_ahead(50);
  std::set<uint64_t> ahead;
  walk(read_ahead, 0, 49, ahead);
  ASSERT_FALSE(ahead.empty());
  EXPECT_EQ(*ahead.rbegin(), 49u);
}

TEST(ReadAheadTest, ADistanceOfZeroTurnsItOff) {
  ReadAhead read_ahead(kChunkCount);
  std::set<uint64_t> ahead;
  walk(read_ahead, 0, 500, ahead, 0);
  EXPECT_TRUE(ahead.empty());
}

TEST(ReadAheadTest, RandomReadsBringNothing) {
  ReadAhead read_ahead(1'000'000);
  std::mt19937_64 random(1);
  for (int i = 0; i < 10'000; ++i) {
    const uint64_t chunk = random() % 1'000'000;
    EXPECT_EQ(read_ahead.on_read(chunk, chunk, kDistanceMax).count, 0u);
  }
}

TEST(ReadAheadTest, FollowsSeveralReadersAmongRandomReads) {
  ReadAhead read_ahead(1'000'000);
  std::mt19937_64 random(1);
  std::set<uint64_t> ahead;
  for (uint64_t i = 0; i < 200; ++i) {
    walk(read_ahead, 1000 + i, 1000 + i, ahead);
    walk(read_ahead, 50'000 + i, 50'000 + i, ahead);
    for (int k = 0; k < 4; ++k) {
      const uint64_t chunk = 100'000 + random() % 900'000;
      EXPECT_EQ(read_ahead.on_read(chunk, chunk, kDistanceMax).count, 0u);
    }
  }
  EXPECT_TRUE(ahead.contains(1199));
  EXPECT_TRUE(ahead.contains(50'199));
}

TEST(ReadAheadTest, RequestsThatOvertakeEachOtherStayOneReader) {
  ReadAhead read_ahead(kChunkCount);
  std::set<uint64_t> ahead;
  walk(read_ahead, 0, 7, ahead);
  for (uint64_t chunk = 8; chunk < 200; chunk += 2) {
    walk(read_ahead, chunk + 1, chunk + 1, ahead);
    walk(read_ahead, chunk, chunk, ahead);
  }
  ASSERT_FALSE(ahead.empty());
  EXPECT_GT(*ahead.rbegin(), 199u);
}

TEST(ReadAheadTest, WhatAReaderLeftBehindIsNotWantedAnyMore) {
  ReadAhead read_ahead(kChunkCount);
  std::set<uint64_t> ahead;
  walk(read_ahead, 0, 99, ahead);
  ASSERT_FALSE(ahead.empty());
  ASSERT_TRUE(read_ahead.is_wanted(*ahead.rbegin()));
  EXPECT_FALSE(read_ahead.is_wanted(98));
  // It went elsewhere.
  std::set<uint64_t> elsewhere;
  walk(read_ahead, 5000, 5100, elsewhere);
  EXPECT_FALSE(read_ahead.is_wanted(*ahead.rbegin()));
  EXPECT_TRUE(read_ahead.is_wanted(*elsewhere.rbegin()));
}

TEST(ReadAheadTest, NewReadersAreFoundHoweverManyThereWere) {
  ReadAhead read_ahead(1'000'000);
  for (uint64_t i = 0; i < 30; ++i) {
    std::set<uint64_t> ahead;
    walk(read_ahead, i * 10'000, i * 10'000 + 20, ahead);
    EXPECT_FALSE(ahead.empty()) << i;
  }
}

}  // namespace
}  // namespace varve::fs
