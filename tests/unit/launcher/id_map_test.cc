#include "launcher/id_map.h"

#include <gtest/gtest.h>

#include <set>

namespace varve::launcher {
namespace {

TEST(IdMapTest, AnOrdinaryImageTakesOneExtent) {
  const auto map = make_id_map(3, {});
  ASSERT_TRUE(map);
  EXPECT_EQ(*map, (std::vector<IdExtent>{{0, kFirstHostId + 3 * kIdsPerSlot, kIdsPerSlot}}));
  EXPECT_EQ(id_map_text(*map), "0 1879244800 65536\n");
}

TEST(IdMapTest, LargeIdsGetExtentsAndNeighboursShareOne) {
  const auto map = make_id_map(0, {4294967294, 70000, 70001, 70000, 70003, 65536});
  ASSERT_TRUE(map);
  const uint32_t base = kFirstLargeHostId;
  EXPECT_EQ(*map, (std::vector<IdExtent>{{0, kFirstHostId, kIdsPerSlot},
                                         {65536, base, 1},
                                         {70000, base + 1, 2},
                                         {70003, base + 3, 1},
                                         {4294967294, base + 4, 1}}));
}

TEST(IdMapTest, SmallIdsInTheListNeedNothing) {
  const auto map = make_id_map(0, {0, 1000, 65535});
  ASSERT_TRUE(map);
  EXPECT_EQ(map->size(), 1u);
}

TEST(IdMapTest, TooManyLargeIdsNameTheFirstWithoutAPlace) {
  std::vector<uint32_t> ids;
  for (uint32_t i = 0; i <= kLargeIdsPerSlotMax; ++i) ids.push_back(100'000 + i);
  ids.pop_back();
  ASSERT_TRUE(make_id_map(0, ids)) << "contiguous ids share an extent, so 300 fit";
  ids.push_back(100'000 + kLargeIdsPerSlotMax);
  const auto map = make_id_map(0, ids);
  ASSERT_FALSE(map);
  EXPECT_EQ(map.error().code(), ErrorCode::kUnsupported);
  EXPECT_NE(map.error().to_string().find("id 100300 after 300 others"), std::string::npos)
      << map.error().to_string();
}

TEST(IdMapTest, EveryIdOfTheImageHasItsPlaceOnTheHost) {
  const auto map = make_id_map(1, {70000, 70001, 4294967294});
  ASSERT_TRUE(map);
  EXPECT_EQ(outside_id(*map, 0), kFirstHostId + kIdsPerSlot);
  EXPECT_EQ(outside_id(*map, 65535), kFirstHostId + 2 * kIdsPerSlot - 1);
  EXPECT_EQ(outside_id(*map, 65536), std::nullopt);
  EXPECT_EQ(outside_id(*map, 70001), kFirstLargeHostId + kLargeIdsPerSlotMax + 1);
  EXPECT_EQ(outside_id(*map, 70002), std::nullopt);
  EXPECT_EQ(outside_id(*map, 4294967294), kFirstLargeHostId + kLargeIdsPerSlotMax + 2);
}

TEST(IdMapTest, AMapNeverPassesTheKernelsPage) {
  std::vector<uint32_t> ids;
  for (uint32_t i = 0; i < kLargeIdsPerSlotMax; ++i) ids.push_back(4'000'000'000 + 2 * i);
  const auto map = make_id_map(0, ids);
  ASSERT_FALSE(map) << "300 scattered ten-digit ids are more than a page";
  // Without those that have no place it works, up to the last byte.
  size_t placed = 0;
  while (make_id_map(0, {ids.begin(), ids.begin() + static_cast<long>(placed) + 1})) ++placed;
  EXPECT_GT(placed, 150u);
  EXPECT_LT(
      id_map_text(*make_id_map(0, {ids.begin(), ids.begin() + static_cast<long>(placed)})).size(),
      4096u);
}

TEST(IdMapTest, NoIdIsRefused) {
  EXPECT_FALSE(make_id_map(0, {4294967295}));
}

TEST(IdMapTest, SlotsNeverShareAHostId) {
  std::set<std::pair<uint64_t, uint64_t>> ranges;
  for (uint32_t slot = 0; slot < kSlotCount; ++slot) {
    std::vector<uint32_t> ids;
    for (uint32_t i = 0; i < kLargeIdsPerSlotMax; ++i) ids.push_back(100'000 + i);
    const auto map = make_id_map(slot, ids);
    ASSERT_TRUE(map);
    for (const IdExtent& extent : *map) {
      ranges.insert({extent.outside, uint64_t{extent.outside} + extent.count});
    }
  }
  EXPECT_EQ(ranges.size(), 2u * kSlotCount);
  uint64_t end = 0;
  for (const auto& [first, past] : ranges) {
    EXPECT_GE(first, end);
    EXPECT_LT(past, uint64_t{0xffff'ffff});
    end = past;
  }
}

}  // namespace
}  // namespace varve::launcher
