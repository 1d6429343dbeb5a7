#include "fs/fetch/chunk_fetcher.h"

#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <set>

#include "base/temp_dir.h"
#include "chunkstore/format/keys.h"
#include "tests/support/fault_store.h"
#include "tests/support/test_layer.h"

namespace varve::fs {
namespace {

using chunkstore::ChunkLocation;
using test::FaultStore;

/// Decodes into memory and notes failures.
class NotingConsumer : public ChunkConsumer {
 public:
  std::optional<MutableByteView> begin(size_t index, const ChunkLocation& location) override {
    if (unwanted.contains(index)) return std::nullopt;
    EXPECT_TRUE(begun.try_emplace(index, location.raw_size).second);
    begun_count_max = std::max(begun_count_max, begun.size());
    return begun.at(index);
  }
  void decoded(size_t index, const ChunkLocation&) override {
    chunks[index] = std::move(begun.at(index));
    begun.erase(index);
  }
  void damaged(size_t index) override { begun.erase(index); }
  void failed(size_t index, const ChunkLocation&, const Error& error) override {
    failures.emplace(index, error);
  }

  std::set<size_t> unwanted;
  std::map<size_t, Bytes> begun;
  size_t begun_count_max = 0;
  std::map<size_t, Bytes> chunks;
  std::map<size_t, Error> failures;
};

class ChunkFetcherTest : public ::testing::Test {
 protected:
  ChunkFetcherTest() {
    store_->set_before([this](FaultStore::Op op, std::string_view key) -> Status {
      if (op == FaultStore::Op::kGetRange && key.starts_with("packs/")) ++range_count_;
      return {};
    });
    for (uint64_t i = 0; i < layer_.chunks.size(); ++i) {
      locations_.push_back(map_->chunk(i, kNoDeadline).value());
    }
  }
  void fetch() { fetcher_.fetch({*store_, *map_, stats_}, locations_, kNoDeadline, consumer_); }

  TempDir dir_ = TempDir::create("varve-chunk-fetcher-").value();
  std::shared_ptr<chunkstore::Store> disk_ =
      chunkstore::open_store(dir_.path() + "/store", true).value();
  std::shared_ptr<FaultStore> store_ = std::make_shared<FaultStore>(disk_);
  test::TestLayer layer_ = test::put_layer(*disk_, test::make_chunks(60, 3, 40'000), 20);
  std::unique_ptr<chunkstore::LayerMap> map_ =
      chunkstore::LayerMap::open(store_, layer_.id, dir_.path(), kNoDeadline).value();
  std::vector<ChunkLocation> locations_;
  LayerStats stats_{map_->header().image_size};
  ChunkFetcher fetcher_;
  NotingConsumer consumer_;
  int range_count_ = 0;
};

TEST_F(ChunkFetcherTest, NeighboursComeWithOneRangeReadAPack) {
  fetch();
  EXPECT_EQ(range_count_, 3);
  ASSERT_EQ(consumer_.chunks.size(), 60u);
  for (size_t i = 0; i < 60; ++i) EXPECT_EQ(consumer_.chunks[i], layer_.chunks[i]);
  EXPECT_EQ(stats_.range_reads, 3u);
  EXPECT_EQ(stats_.fetched_bytes, map_->stored_bytes());
}

TEST_F(ChunkFetcherTest, AFewNeighboursAreDecodedTogether) {
  fetch();
  EXPECT_EQ(consumer_.begun_count_max, ChunkFetcher::kTogetherCountMax);
  EXPECT_TRUE(consumer_.begun.empty());
}

TEST_F(ChunkFetcherTest, ChunksThatNobodyWantsAnyMoreAreLeftOut) {
  consumer_.unwanted = {0, 4, 5, 59};
  fetch();
  EXPECT_EQ(consumer_.chunks.size(), 56u);
  EXPECT_TRUE(consumer_.failures.empty());
  for (const auto& [index, bytes] : consumer_.chunks) EXPECT_EQ(bytes, layer_.chunks[index]);
}

TEST_F(ChunkFetcherTest, ARangeReadIsNeverLargerThanItsBound) {
  layer_ = test::put_layer(*disk_, test::make_chunks(40, 9, 1 << 20));
  map_ = chunkstore::LayerMap::open(store_, layer_.id, dir_.path(), kNoDeadline).value();
  locations_.clear();
  for (uint64_t i = 0; i < 40; ++i) locations_.push_back(map_->chunk(i, kNoDeadline).value());
  store_->set_after_read([](std::string_view key, uint64_t, MutableByteView bytes) {
    if (!key.starts_with("packs/")) return;
    EXPECT_LE(bytes.size(), ChunkFetcher::kRangeBytesMax);
  });
  fetch();
  EXPECT_EQ(consumer_.chunks.size(), 40u);
}

TEST_F(ChunkFetcherTest, ATruncatedPackLosesOnlyTheChunksPastItsEnd) {
  const Digest pack = locations_[30].pack;
  const Bytes bytes = disk_->get(chunkstore::pack_key(pack), 1 << 26, kNoDeadline).value();
  test::must(disk_->replace(chunkstore::pack_key(pack),
                            ByteView(bytes).first(locations_[30].pack_offset + 1), kNoDeadline));
  fetch();
  for (size_t i = 0; i < 60; ++i) {
    const bool is_lost = i >= 30 && i < 40;
    EXPECT_EQ(consumer_.chunks.contains(i), !is_lost) << i;
    EXPECT_EQ(consumer_.failures.contains(i), is_lost) << i;
  }
  const std::string message = consumer_.failures.at(30).to_string();
  EXPECT_NE(message.find(pack.hex()), std::string::npos) << message;
  EXPECT_NE(message.find(locations_[30].id.short_hex()), std::string::npos) << message;
}

TEST_F(ChunkFetcherTest, AWrongByteFailsItsChunkOnly) {
  const auto& bad = locations_[5];
  Bytes bytes = disk_->get(chunkstore::pack_key(bad.pack), 1 << 26, kNoDeadline).value();
  bytes[bad.pack_offset] ^= 1;
  test::must(disk_->replace(chunkstore::pack_key(bad.pack), bytes, kNoDeadline));
  fetch();
  EXPECT_EQ(consumer_.chunks.size(), 59u);
  ASSERT_EQ(consumer_.failures.size(), 1u);
  EXPECT_EQ(consumer_.failures.at(5).code(), ErrorCode::kCorruption);
}

TEST_F(ChunkFetcherTest, ChunksThatMovedAreFoundByTheNewPlacement) {
  const std::vector<Digest> old_packs = layer_.packs;
  test::put_placement(*disk_, layer_, 7);
  for (const Digest& pack : old_packs) {
    if (std::find(layer_.packs.begin(), layer_.packs.end(), pack) == layer_.packs.end()) {
      test::must(disk_->remove(chunkstore::pack_key(pack), kNoDeadline));
    }
  }
  fetch();
  EXPECT_EQ(consumer_.chunks.size(), 60u);
  EXPECT_TRUE(consumer_.failures.empty());
}

TEST_F(ChunkFetcherTest, AnUnreachableStoreFailsEveryChunkWithoutASecondTry) {
  store_->set_before([this](FaultStore::Op op, std::string_view key) -> Status {
    if (op != FaultStore::Op::kGetRange || !key.starts_with("packs/")) return {};
    ++range_count_;
    return fail(ErrorCode::kUnavailable, "gone");
  });
  fetch();
  EXPECT_EQ(consumer_.failures.size(), 60u);
  EXPECT_EQ(range_count_, 3);
}

}  // namespace
}  // namespace varve::fs
