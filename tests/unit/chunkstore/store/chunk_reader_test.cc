#include "chunkstore/read/chunk_reader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "base/temp_dir.h"
#include "chunkstore/format/keys.h"
#include "chunkstore/read/image_store.h"
#include "chunkstore/read/layer_image_source.h"
#include "tests/support/fault_store.h"
#include "tests/support/test_layer.h"

namespace varve::chunkstore {
namespace {

using Op = test::FaultStore::Op;

class ChunkReaderTest : public ::testing::Test {
 protected:
  // In memory: these tests sync thousands of files.
  TempDir dir_ = TempDir::create("varve-chunk-reader-", "/dev/shm").value();
  std::shared_ptr<Store> disk_ = open_store(dir_.path() + "/store", true).value();
  std::shared_ptr<test::FaultStore> store_ = std::make_shared<test::FaultStore>(disk_);
  test::TestLayer layer_ = test::put_layer(*disk_, test::make_chunks(60, 3, 40'000), 25);
  std::unique_ptr<LayerMap> map_ =
      LayerMap::open(store_, layer_.id, dir_.path(), kNoDeadline).value();
  ChunkReader reader_{store_};

  ChunkLocation location(uint64_t index) { return map_->chunk(index, kNoDeadline).value(); }
  void damage_pack(const Digest& pack, uint64_t at) {
    Bytes bytes = disk_->get(pack_key(pack), 1 << 26, kNoDeadline).value();
    bytes[at] ^= 1;
    test::must(disk_->replace(pack_key(pack), bytes, kNoDeadline));
  }
};

TEST_F(ChunkReaderTest, ReadsAndMergesNeighbours) {
  int range_count = 0;
  std::vector<ChunkLocation> locations;
  for (uint64_t i = 0; i < 60; ++i) locations.push_back(location(i));
  store_->set_before([&](Op op, std::string_view) -> Status {
    if (op == Op::kGetRange) ++range_count;
    return {};
  });
  EXPECT_EQ(reader_.read_all(*map_, locations, kNoDeadline).value(), layer_.chunks);
  EXPECT_EQ(range_count, 3);
  EXPECT_EQ(reader_.fetched_bytes(), map_->stored_bytes());
  std::ranges::reverse(locations);
  EXPECT_EQ(reader_.read_all(*map_, locations, kNoDeadline).value().back(), layer_.chunks[0]);
  EXPECT_EQ(range_count, 3 + 60);
  EXPECT_EQ(reader_.read(*map_, location(7), kNoDeadline).value(), layer_.chunks[7]);
}

TEST_F(ChunkReaderTest, AWrongByteIsReportedWithChunkPackAndOffsetAfterOneMoreTry) {
  const ChunkLocation bad = location(30);
  damage_pack(bad.pack, bad.pack_offset + bad.stored_size / 2);
  int current_count = 0;
  int pack_count = 0;
  store_->set_before([&](Op op, std::string_view key) -> Status {
    if (op == Op::kGet && key.ends_with("/current")) ++current_count;
    if (op == Op::kGetRange && key.starts_with("packs/")) ++pack_count;
    return {};
  });
  const auto result = reader_.read(*map_, bad, kNoDeadline);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code(), ErrorCode::kCorruption);
  EXPECT_EQ(current_count, 1);
  EXPECT_EQ(pack_count, 2);
  const std::string message = result.error().to_string();
  EXPECT_NE(message.find(bad.id.hex()), std::string::npos) << message;
  EXPECT_NE(message.find(bad.pack.hex()), std::string::npos) << message;
  EXPECT_NE(message.find("offset " + std::to_string(bad.pack_offset)), std::string::npos)
      << message;
  EXPECT_EQ(reader_.read(*map_, location(31), kNoDeadline).value(), layer_.chunks[31]);
}

TEST_F(ChunkReaderTest, ATransferDamagedOnceIsFetchedAgain) {
  bool damaged = false;
  store_->set_after_read([&](std::string_view key, uint64_t, MutableByteView bytes) {
    if (!key.starts_with("packs/") || damaged) return;
    damaged = true;
    bytes[bytes.size() / 2] ^= 1;
  });
  std::vector<ChunkLocation> locations;
  for (uint64_t i = 0; i < 25; ++i) locations.push_back(location(i));
  const auto chunks = reader_.read_all(*map_, locations, kNoDeadline);
  ASSERT_TRUE(chunks) << chunks.error().to_string();
  EXPECT_TRUE(std::ranges::equal(*chunks, std::span(layer_.chunks).first(25)));
  EXPECT_TRUE(damaged);
}

TEST_F(ChunkReaderTest, AChunkThatMovedIsFoundByTheNewPlacement) {
  const ChunkLocation old = location(10);
  const Digest old_pack = layer_.packs[0];
  test::put_placement(*disk_, layer_, 7);
  test::must(disk_->remove(pack_key(old_pack), kNoDeadline));
  EXPECT_EQ(reader_.read(*map_, old, kNoDeadline).value(), layer_.chunks[10]);
}

TEST_F(ChunkReaderTest, AMissingOrTruncatedPackIsAnErrorThatNamesIt) {
  const ChunkLocation lost = location(10);
  const ChunkLocation cut = location(59);
  test::must(disk_->remove(pack_key(lost.pack), kNoDeadline));
  const Bytes pack = disk_->get(pack_key(cut.pack), 1 << 26, kNoDeadline).value();
  test::must(
      disk_->replace(pack_key(cut.pack), ByteView(pack).first(cut.pack_offset + 1), kNoDeadline));
  EXPECT_EQ(reader_.read(*map_, lost, kNoDeadline).error().code(), ErrorCode::kNotFound);
  EXPECT_EQ(reader_.read(*map_, cut, kNoDeadline).error().code(), ErrorCode::kCorruption);
  EXPECT_NE(reader_.read(*map_, lost, kNoDeadline).error().to_string().find(lost.pack.hex()),
            std::string::npos);
  EXPECT_EQ(reader_.read(*map_, location(30), kNoDeadline).value(), layer_.chunks[30]);
}

TEST_F(ChunkReaderTest, AnUnavailableStoreIsReportedAsSuchWithoutASecondTry) {
  const ChunkLocation wanted = location(1);
  int count = 0;
  store_->set_before([&](Op, std::string_view) -> Status {
    ++count;
    return fail(ErrorCode::kUnavailable, "connection refused");
  });
  EXPECT_EQ(reader_.read(*map_, wanted, kNoDeadline).error().code(), ErrorCode::kUnavailable);
  EXPECT_EQ(count, 1);
  const std::vector<ChunkLocation> locations = {wanted};
  EXPECT_EQ(reader_.read_all(*map_, locations, kNoDeadline).error().code(),
            ErrorCode::kUnavailable);
}

TEST_F(ChunkReaderTest, TheImageSourceReadsAnyRangeAndAheadOnSequentialReads) {
  LayerImageSource source(store_, std::move(map_), LayerImageSource::Options{});
  std::mt19937 random(5);
  for (int i = 0; i < 300; ++i) {
    const uint64_t offset = random() % layer_.image.size();
    Bytes bytes(std::min<uint64_t>(random() % 100'000, layer_.image.size() - offset));
    ASSERT_TRUE(source.read(offset, bytes));
    EXPECT_TRUE(std::ranges::equal(bytes, ByteView(layer_.image).subspan(offset, bytes.size())));
  }
  int range_count = 0;
  store_->set_before([&](Op op, std::string_view) -> Status {
    if (op == Op::kGetRange) ++range_count;
    return {};
  });
  LayerImageSource fresh(store_, LayerMap::open(disk_, layer_.id, dir_.path(), kNoDeadline).value(),
                         LayerImageSource::Options{});
  Bytes all;
  while (all.size() < layer_.image.size()) {
    Bytes bytes(std::min<uint64_t>(4096, layer_.image.size() - all.size()));
    ASSERT_TRUE(fresh.read(all.size(), bytes));
    append(all, bytes);
  }
  EXPECT_EQ(all, layer_.image);
  EXPECT_LT(range_count, 25);
  Bytes two(2);
  EXPECT_EQ(fresh.read(layer_.image.size() - 1, two).error().code(), ErrorCode::kCorruption);
  EXPECT_EQ(fresh.read(UINT64_MAX, two).error().code(), ErrorCode::kCorruption);
}

TEST_F(ChunkReaderTest, ImagesAreFoundByRefIdAndUniquePrefix) {
  const Digest id = test::put_image(*disk_, {layer_.id}, "team/app:v1");
  const ImageStore images(disk_);
  for (const std::string& text : {std::string("team/app:v1"), id.hex(), id.hex().substr(0, 8)}) {
    const auto found = images.resolve(text, kNoDeadline);
    ASSERT_TRUE(found) << found.error().to_string();
    EXPECT_EQ(found->id, id);
    EXPECT_EQ(found->image.layers, std::vector<Digest>{layer_.id});
  }
  EXPECT_EQ(images.resolve("team/app", kNoDeadline).error().code(), ErrorCode::kNotFound);
  EXPECT_EQ(images.resolve(id.hex().substr(0, 3), kNoDeadline).error().code(),
            ErrorCode::kNotFound);
  EXPECT_EQ(images.resolve("No Such", kNoDeadline).error().code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(images.find_layer(layer_.id.hex().substr(0, 12), kNoDeadline).value(), layer_.id);
  EXPECT_EQ(images.refs(kNoDeadline).value().size(), 1u);
  EXPECT_EQ(images.images(kNoDeadline).value(), std::vector<Digest>{id});
  disk_
      ->put_if_absent("images/" + id.hex().substr(0, 63) + (id.hex()[63] == '0' ? "1" : "0"),
                      as_bytes("x"), kNoDeadline)
      .value();
  EXPECT_EQ(images.resolve(id.hex().substr(0, 8), kNoDeadline).error().code(),
            ErrorCode::kInvalidArgument);
  ASSERT_TRUE(images.remove_ref(parse_ref("team/app:v1").value(), kNoDeadline));
  EXPECT_EQ(images.remove_ref(parse_ref("team/app:v1").value(), kNoDeadline).error().code(),
            ErrorCode::kNotFound);
}

TEST_F(ChunkReaderTest, ARefWinsOverAPrefixAndAChangedImageIsCorruption) {
  const Digest id = test::put_image(*disk_, {layer_.id}, "app:v1");
  const std::string prefix = id.hex().substr(0, 6);
  const test::TestLayer other = test::put_layer(*disk_, test::make_chunks(3, 9));
  const Digest other_id = test::put_image(*disk_, {other.id}, prefix + ":latest");
  const ImageStore images(disk_);
  EXPECT_EQ(images.resolve(prefix, kNoDeadline).value().id, other_id);
  test::must(disk_->replace(
      image_key(id), disk_->get(image_key(other_id), 1 << 20, kNoDeadline).value(), kNoDeadline));
  EXPECT_EQ(images.resolve("app:v1", kNoDeadline).error().code(), ErrorCode::kCorruption);
}

}  // namespace
}  // namespace varve::chunkstore
