#include "chunkstore/read/layer_map.h"

#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <thread>

#include "base/temp_dir.h"
#include "chunkstore/format/keys.h"
#include "chunkstore/format/placement.h"
#include "tests/support/fault_store.h"
#include "tests/support/test_layer.h"

namespace varve::chunkstore {
namespace {

class LayerMapTest : public ::testing::Test {
 protected:
  // In memory: these tests sync thousands of files.
  TempDir dir_ = TempDir::create("varve-layer-map-", "/dev/shm").value();
  std::shared_ptr<Store> store_ = open_store(dir_.path() + "/store", true).value();

  std::unique_ptr<LayerMap> open(const Digest& layer, std::shared_ptr<Store> store = nullptr) {
    auto map = LayerMap::open(store ? store : store_, layer, dir_.path(), kNoDeadline);
    EXPECT_TRUE(map) << map.error().to_string();
    return std::move(*map);
  }
};

TEST_F(LayerMapTest, FindsEveryChunkByOffsetAndByIndex) {
  const auto layer = test::put_layer(*store_, test::make_chunks(2500, 1, 20), 700);
  const auto map = open(layer.id);
  EXPECT_EQ(map->header().image_size, layer.image.size());
  uint64_t offset = 0;
  for (size_t i = 0; i < layer.chunks.size(); ++i) {
    const uint64_t last = offset + layer.chunks[i].size() - 1;
    for (const auto& found : {map->locate(offset, kNoDeadline), map->locate(last, kNoDeadline),
                              map->chunk(i, kNoDeadline)}) {
      ASSERT_TRUE(found) << found.error().to_string();
      EXPECT_EQ(found->index, i);
      EXPECT_EQ(found->image_offset, offset);
      EXPECT_EQ(found->raw_size, layer.chunks[i].size());
      EXPECT_EQ(found->id, sha256(layer.chunks[i]));
      EXPECT_EQ(found->pack, layer.packs[i / 700]);
    }
    offset += layer.chunks[i].size();
  }
  EXPECT_FALSE(map->locate(offset, kNoDeadline));
  EXPECT_FALSE(map->chunk(layer.chunks.size(), kNoDeadline));
}

TEST_F(LayerMapTest, OpeningReadsNoLeafAndEachPageIsFetchedOnce) {
  const auto layer = test::put_layer(*store_, test::make_chunks(2500, 1, 20));
  std::atomic<int> range_count{0};
  auto counting = std::make_shared<test::FaultStore>(
      store_, [&](test::FaultStore::Op op, std::string_view) -> Status {
        if (op == test::FaultStore::Op::kGetRange) ++range_count;
        return {};
      });
  const auto map = open(layer.id, counting);
  EXPECT_EQ(range_count, 2);
  EXPECT_FALSE(map->locate_local(0));
  ASSERT_TRUE(map->locate(0, kNoDeadline));
  EXPECT_EQ(range_count, 4);
  EXPECT_EQ(map->locate_local(0)->id, sha256(layer.chunks[0]));
  EXPECT_FALSE(map->locate_local(layer.image.size() - 1));
  EXPECT_FALSE(map->locate_local(layer.image.size()));
  for (size_t i = 0; i < layer.chunks.size(); ++i) ASSERT_TRUE(map->chunk(i, kNoDeadline));
  EXPECT_EQ(range_count, 2 + 2 * 3);
}

TEST_F(LayerMapTest, AnIdleLayerOfManyLeavesHoldsLittleMemory) {
  std::vector<LayerChunk> chunks(600'000);
  for (size_t i = 0; i < chunks.size(); ++i) {
    store_le<uint64_t>(chunks[i].id.bytes.data(), i);
    chunks[i].raw_size = 4096;
  }
  const auto layer = encode_layer(chunks.size() * 4096, 4096, 36, chunks).value();
  Placement placement{layer.id, std::vector<Digest>(1500), {}, chunks.size()};
  for (size_t i = 0; i < placement.packs.size(); ++i)
    store_le<uint64_t>(placement.packs[i].bytes.data(), i);
  for (size_t i = 0; i < chunks.size(); ++i)
    placement.entries.push_back(
        {static_cast<uint32_t>(i / 400), static_cast<uint32_t>(i % 400) * 4096, 4096, true});
  const Bytes object = encode_placement(placement);
  store_->put_if_absent(layer_key(layer.id), layer.object, kNoDeadline).value();
  store_->put_if_absent(placement_key(layer.id, sha256(object)), object, kNoDeadline).value();
  test::must(store_->replace(current_placement_key(layer.id),
                             as_bytes(encode_pointer(sha256(object))), kNoDeadline));
  const auto map = open(layer.id);
  EXPECT_EQ(map->header().leaf_count(), 586u);
  EXPECT_LE(map->memory_bytes(), 64u << 10);
  for (const uint64_t i :
       {uint64_t{0}, uint64_t{1023}, uint64_t{1024}, uint64_t{377'777}, chunks.size() - 1}) {
    const auto found = map->locate(i * 4096 + 4095, kNoDeadline);
    ASSERT_TRUE(found) << found.error().to_string();
    EXPECT_EQ(found->index, i);
    EXPECT_EQ(found->id, chunks[i].id);
    EXPECT_EQ(found->pack, placement.packs[i / 400]);
  }
}

TEST_F(LayerMapTest, EveryFlippedByteOfALayerIsCorruption) {
  const auto layer = test::put_layer(*store_, test::make_chunks(5, 1, 100));
  const size_t size = store_->stat(layer_key(layer.id), kNoDeadline).value().size;
  for (size_t at = 0; at < size; ++at) {
    auto flipping = std::make_shared<test::FaultStore>(store_);
    flipping->set_after_read([&](std::string_view key, uint64_t offset, MutableByteView bytes) {
      if (!key.starts_with("layers/") || at < offset || at - offset >= bytes.size()) return;
      bytes[at - offset] ^= 0x40;
    });
    auto map = LayerMap::open(flipping, layer.id, dir_.path(), kNoDeadline);
    if (!map) continue;
    EXPECT_GE(at, 64u + 40u) << "a changed header was taken";
    const auto found = (*map)->locate(0, kNoDeadline);
    ASSERT_FALSE(found) << "byte " << at;
    EXPECT_EQ(found.error().code(), ErrorCode::kCorruption);
    EXPECT_NE(found.error().to_string().find(layer.id.hex()), std::string::npos);
  }
}

TEST_F(LayerMapTest, ALayerObjectCutAnywhereIsCorruption) {
  const auto layer = test::put_layer(*store_, test::make_chunks(5, 1, 100));
  const std::string path = dir_.path() + "/store/" + layer_key(layer.id);
  for (size_t size = std::filesystem::file_size(path); size-- > 0;) {
    std::filesystem::resize_file(path, size);
    EXPECT_EQ(LayerMap::open(store_, layer.id, dir_.path(), kNoDeadline).error().code(),
              ErrorCode::kCorruption);
  }
}

TEST_F(LayerMapTest, MissingPartsAreNotFound) {
  const auto layer = test::put_layer(*store_, test::make_chunks(5, 1, 100));
  EXPECT_EQ(LayerMap::open(store_, Digest{}, dir_.path(), kNoDeadline).error().code(),
            ErrorCode::kNotFound);
  test::must(store_->remove(current_placement_key(layer.id), kNoDeadline));
  const auto map = LayerMap::open(store_, layer.id, dir_.path(), kNoDeadline);
  EXPECT_EQ(map.error().code(), ErrorCode::kNotFound);
  EXPECT_NE(map.error().to_string().find(layer.id.hex()), std::string::npos);
}

TEST_F(LayerMapTest, RefreshingTakesTheNewPlacementAndOnlyThen) {
  auto layer = test::put_layer(*store_, test::make_chunks(50, 1, 1000));
  const Digest old_pack = layer.packs[0];
  const auto map = open(layer.id);
  EXPECT_EQ(map->chunk(40, kNoDeadline)->pack, old_pack);
  EXPECT_FALSE(map->refresh_placement(kNoDeadline).value());
  test::put_placement(*store_, layer, 20);
  EXPECT_EQ(map->chunk(40, kNoDeadline)->pack, old_pack);
  const uint64_t offset = map->chunk(40, kNoDeadline)->image_offset;
  EXPECT_EQ(map->locate(offset, kNoDeadline)->pack, old_pack);
  EXPECT_TRUE(map->refresh_placement(kNoDeadline).value());
  // What was remembered of the old placement is forgotten.
  EXPECT_FALSE(map->locate_local(offset));
  EXPECT_EQ(map->locate(offset, kNoDeadline)->pack, layer.packs[2]);
  EXPECT_EQ(map->locate_local(offset)->pack, layer.packs[2]);
  EXPECT_EQ(map->chunk(40, kNoDeadline)->pack, layer.packs[2]);
  test::must(store_->replace(current_placement_key(layer.id), as_bytes("nonsense"), kNoDeadline));
  EXPECT_EQ(map->refresh_placement(kNoDeadline).error().code(), ErrorCode::kCorruption);
  EXPECT_EQ(map->chunk(40, kNoDeadline)->pack, layer.packs[2]);
}

TEST_F(LayerMapTest, AHungFetchOfOnePageEndsByTheDeadlineAndHoldsUpNoOther) {
  const auto layer = test::put_layer(*store_, test::make_chunks(2500, 1, 20));
  std::atomic<bool> hang{false};
  std::atomic<bool> hanging{false};
  const uint64_t first_leaf = LayerHeader{.chunk_count = 2500}.leaf_page_offset(0);
  auto hung = std::make_shared<test::FaultStore>(store_);
  hung->set_after_read([&](std::string_view key, uint64_t offset, MutableByteView) {
    if (!key.starts_with("layers/") || offset != first_leaf) return;
    hanging = true;
    while (hang) std::this_thread::yield();
  });
  const auto map = open(layer.id, hung);
  hang = true;
  std::thread first([&] { EXPECT_TRUE(map->chunk(0, kNoDeadline)); });
  while (!hanging) std::this_thread::yield();
  EXPECT_EQ(map->chunk(1, deadline_after_ms(20)).error().code(), ErrorCode::kTimedOut);
  EXPECT_TRUE(map->chunk(2000, kNoDeadline));
  hang = false;
  first.join();
  EXPECT_TRUE(map->chunk(1, kNoDeadline));
}

TEST_F(LayerMapTest, ParallelReadersAndRefreshesAgree) {
  auto layer = test::put_layer(*store_, test::make_chunks(3000, 1, 20));
  const auto map = open(layer.id);
  std::atomic<bool> stop{false};
  std::vector<std::thread> readers;
  for (int t = 0; t < 4; ++t) {
    readers.emplace_back([&, t] {
      for (size_t i = static_cast<size_t>(t); !stop; i = (i + 37) % layer.chunks.size()) {
        const auto found = map->chunk(i, kNoDeadline);
        ASSERT_TRUE(found) << found.error().to_string();
        EXPECT_EQ(found->raw_size, layer.chunks[i].size());
      }
    });
  }
  test::TestLayer moved = layer;
  for (int round = 0; round < 6; ++round) {
    test::put_placement(*store_, moved, round % 2 == 0 ? 500 : 900);
    EXPECT_TRUE(map->refresh_placement(kNoDeadline).value());
  }
  stop = true;
  for (std::thread& reader : readers) reader.join();
}

}  // namespace
}  // namespace varve::chunkstore
