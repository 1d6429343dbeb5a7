#include "chunkstore/build/file_cutter.h"

#include <gtest/gtest.h>

#include <set>

#include "base/hash.h"
#include "chunkstore/build/fast_cdc.h"
#include "tests/unit/chunkstore/build/test_entries.h"

namespace varve::chunkstore {
namespace {

struct Cut {
  CutFile file;
  std::vector<Bytes> chunks;
  std::string joined() const {
    std::string all;
    for (const Bytes& chunk : chunks) all += as_text(chunk);
    return all;
  }
};

Cut cut(const std::string& content, size_t piece = 1 << 20) {
  Cut result;
  FileCutter cutter(content.size(), [&](Bytes chunk) -> Status {
    result.chunks.push_back(std::move(chunk));
    return {};
  });
  for (size_t at = 0; at < content.size(); at += piece)
    EXPECT_TRUE(cutter.write(as_bytes(std::string_view(content).substr(at, piece))));
  auto file = cutter.finish();
  EXPECT_TRUE(file.has_value()) << file.error().to_string();
  result.file = *file;
  EXPECT_EQ(result.file.chunk_count, result.chunks.size());
  EXPECT_EQ(result.file.stored_bytes, result.joined().size());
  return result;
}

TEST(FastCdcTest, KeepsChunkSizesInTheirBounds) {
  const std::string content = noise(20 << 20, 7);
  ByteView rest = as_bytes(content);
  size_t count = 0;
  for (; !rest.empty(); ++count) {
    const size_t size = fast_cdc::first_chunk_size(rest);
    ASSERT_LE(size, fast_cdc::kChunkBytesMax);
    ASSERT_GE(size, std::min(rest.size(), fast_cdc::kChunkBytesMin));
    rest = rest.subspan(size);
  }
  // Normalised chunking keeps the average near the normal size.
  EXPECT_GT(count, content.size() / (fast_cdc::kChunkBytesNormal * 2));
  EXPECT_LT(count, content.size() / (fast_cdc::kChunkBytesNormal / 2));
}

/// The definition, byte by byte: what a second implementation would do.
size_t defined_chunk_size(ByteView data) {
  static const std::vector<uint64_t> gear = [] {
    std::vector<uint64_t> table;
    for (int i = 0; i < 256; ++i) {
      const std::string text = std::string(fast_cdc::kGearSeed) + static_cast<char>(i);
      table.push_back(load_le<uint64_t>(sha256(as_bytes(text)).bytes.data()));
    }
    return table;
  }();
  uint64_t fingerprint = 0;
  const size_t end = std::min(data.size(), fast_cdc::kChunkBytesMax);
  for (size_t i = fast_cdc::kChunkBytesMin; i < end; ++i) {
    fingerprint = (fingerprint << 1) + gear[data[i]];
    const unsigned bits =
        i < fast_cdc::kChunkBytesNormal ? fast_cdc::kBitsBeforeNormal : fast_cdc::kBitsAfterNormal;
    if (fingerprint >> (64 - bits) == 0) return i + 1;
  }
  return end;
}

TEST(FastCdcTest, FollowsItsDefinition) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const std::string content = noise(100'000 + seed * 20'011, seed);
    EXPECT_EQ(fast_cdc::first_chunk_size(as_bytes(content)), defined_chunk_size(as_bytes(content)));
  }
}

TEST(FastCdcTest, CutsZerosAtTheLargestSize) {
  EXPECT_EQ(fast_cdc::first_chunk_size(Bytes(2 << 20)), fast_cdc::kChunkBytesMax);
}

TEST(FileCutterTest, CutsTheSameWhateverThePieces) {
  const std::string content = noise(3'000'000, 1);
  const Cut whole = cut(content);
  EXPECT_EQ(cut(content, 4096).chunks, whole.chunks);
  EXPECT_EQ(cut(content, 99'991).chunks, whole.chunks);
  EXPECT_EQ(whole.joined().substr(0, content.size()), content);
  EXPECT_EQ(whole.file.stored_bytes % 4096, 0U);
  EXPECT_LT(whole.file.stored_bytes - content.size(), 4096U);
  EXPECT_TRUE(whole.file.holes.empty());
}

TEST(FileCutterTest, AnEditInTheMiddleChangesTwoChunksAtMost) {
  std::string content = noise(8 << 20, 2);
  const Cut before = cut(content);
  content.insert(4'000'000, "some new bytes");
  const Cut after = cut(content);
  const std::set<Bytes> old_chunks(before.chunks.begin(), before.chunks.end());
  size_t new_count = 0;
  for (const Bytes& chunk : after.chunks) new_count += old_chunks.contains(chunk) ? 0 : 1;
  // The last chunk differs as well: its padding moved.
  EXPECT_LE(new_count, 3U);
}

TEST(FileCutterTest, FindsHolesOfWholeUnitsOnly) {
  const uint64_t unit = kHoleUnitBytesMin;
  const std::string zeros(unit, '\0');
  std::string content = noise(unit, 1) + zeros + zeros + noise(unit / 2, 2) +
                        std::string(unit / 2, '\0') + std::string(unit / 2, '\0') +
                        noise(unit / 2, 3) + zeros + noise(100, 4);
  const Cut result = cut(content, 10'000);
  ASSERT_EQ(result.file.holes.size(), 2U);
  EXPECT_EQ(result.file.holes[0].first, 1U);
  EXPECT_EQ(result.file.holes[0].count, 2U);
  EXPECT_EQ(result.file.holes[1].first, 5U);
  EXPECT_EQ(result.file.holes[1].count, 1U);
  std::string stored = content;
  stored.erase(6 * unit - unit, unit);
  stored.erase(unit, 2 * unit);
  EXPECT_EQ(result.joined().substr(0, stored.size()), stored);
}

TEST(FileCutterTest, ZerosThatASourceSkipsAreTheSameAsZerosThatItReads) {
  const std::string head = noise(100'000, 1);
  const std::string tail = noise(5'000, 2);
  const uint64_t gap = 5 * kHoleUnitBytesMin + 777;
  const Cut read = cut(head + std::string(gap, '\0') + tail);
  std::vector<Bytes> chunks;
  FileCutter cutter(head.size() + gap + tail.size(), [&](Bytes chunk) -> Status {
    chunks.push_back(std::move(chunk));
    return {};
  });
  ASSERT_TRUE(cutter.write(as_bytes(head)));
  ASSERT_TRUE(cutter.write_zeros(gap));
  ASSERT_TRUE(cutter.write(as_bytes(tail)));
  const auto skipped = cutter.finish();
  ASSERT_TRUE(skipped.has_value());
  EXPECT_EQ(chunks, read.chunks);
  ASSERT_EQ(skipped->holes.size(), read.file.holes.size());
  EXPECT_EQ(skipped->holes[0].first, read.file.holes[0].first);
  EXPECT_EQ(skipped->holes[0].count, read.file.holes[0].count);
}

TEST(FileCutterTest, SkipsTerabytesOfHolesWithoutWorkForEachByte) {
  const uint64_t size = uint64_t{8} << 40;
  uint64_t stored = 0;
  FileCutter cutter(size, [&](Bytes chunk) -> Status {
    stored += chunk.size();
    return {};
  });
  ASSERT_TRUE(cutter.write_zeros(size - 3));
  ASSERT_TRUE(cutter.write(as_bytes("end")));
  const auto file = cutter.finish();
  ASSERT_TRUE(file.has_value());
  EXPECT_EQ(hole_unit_bytes(size), size / kHoleUnitCountMax);
  EXPECT_EQ(file->holes.size(), 1U);
  EXPECT_EQ(file->holes[0].count, kHoleUnitCountMax - 1);
  EXPECT_EQ(stored, size / kHoleUnitCountMax);
}

TEST(FileCutterTest, KeepsTheChunkMapSmallForEverySize) {
  EXPECT_EQ(hole_unit_bytes(1), kHoleUnitBytesMin);
  EXPECT_EQ(hole_unit_bytes(uint64_t{4} << 30), kHoleUnitBytesMin);
  EXPECT_EQ(hole_unit_bytes((uint64_t{4} << 30) + 1), 2 * kHoleUnitBytesMin);
  EXPECT_EQ(hole_unit_bytes(INT64_MAX), kHoleUnitBytesMax);
}

TEST(FileCutterTest, RefusesContentOfAnotherLength) {
  const auto ignore = [](Bytes) -> Status { return {}; };
  FileCutter longer(10, ignore);
  EXPECT_FALSE(longer.write(as_bytes("eleven byte")).has_value());
  FileCutter shorter(10, ignore);
  ASSERT_TRUE(shorter.write(as_bytes("five!")));
  EXPECT_EQ(shorter.finish().error().code(), ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace varve::chunkstore
