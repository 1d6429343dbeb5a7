#include <gtest/gtest.h>

#include <filesystem>

#include "base/file_io.h"
#include "base/temp_dir.h"
#include "chunkstore/format/image.h"
#include "chunkstore/format/keys.h"
#include "chunkstore/format/layer.h"
#include "chunkstore/format/pack.h"
#include "chunkstore/format/placement.h"
#include "chunkstore/read/image_store.h"
#include "chunkstore/read/layer_image_source.h"
#include "chunkstore/read/verify.h"

// The store and the inputs in tests/data were made by tests/data/make_store_data.py, which knows
// only the man pages.
namespace varve::chunkstore {
namespace {

const std::string kData = VARVE_TEST_DATA;

TEST(GoldenStoreTest, AStoreMadeFromTheManPageHasNoFaultAndReadsAsItWasMade) {
  const auto store = open_store(kData + "/store", false).value();
  EXPECT_EQ(store->id(), "00000000-1111-4222-8333-444444444444");
  const auto verified = verify_store(*store, VerifyOptions{}).value();
  for (const VerifyFault& fault : verified.faults)
    ADD_FAILURE() << fault.key << ": " << fault.message;
  EXPECT_EQ(verified.pack_count, 2u);
  EXPECT_EQ(verified.chunk_count, 5u);

  const auto image = ImageStore(store).resolve("team/app:v1", kNoDeadline).value().image;
  EXPECT_EQ(image.config.env, (std::vector<std::string>{"PATH=/bin", "NAME=\xc3\xa9\n\"\\\x01"}));
  EXPECT_EQ(image.ids, (std::vector<uint32_t>{70000, 4294967294}));
  EXPECT_EQ(image.annotations.at("note"), "carried");
  EXPECT_EQ(sha256(encode_image(image).value()), ImageStore(store).images(kNoDeadline).value()[0]);

  const TempDir spool = TempDir::create("varve-golden-").value();
  const auto source = LayerImageSource::open(store, image.layers.at(0), spool.path(), {}).value();
  Bytes bytes(source->size());
  ASSERT_TRUE(source->read(0, bytes));
  EXPECT_EQ(as_text(ByteView(bytes).first(20)), "the metadata region ");
  EXPECT_EQ(sha256(bytes).hex(),
            "0555c5a57ab8fe86e60615bac3aa97d897fa96ff73fa71658e2741a1a1741e38");
}

TEST(GoldenStoreTest, WhatTheEncodersMakeIsWhatTheManPageSays) {
  // The layer of the golden store, encoded anew from its chunks.
  const auto store = open_store(kData + "/store", false).value();
  const auto image = ImageStore(store).resolve("team/app:v1", kNoDeadline).value().image;
  const TempDir spool = TempDir::create("varve-golden-").value();
  const auto map = LayerMap::open(store, image.layers[0], spool.path(), kNoDeadline).value();
  std::vector<LayerChunk> chunks;
  Placement placement;
  placement.layer = image.layers[0];
  placement.stored_bytes = map->stored_bytes();
  for (uint64_t i = 0; i < map->header().chunk_count; ++i) {
    const ChunkLocation at = map->chunk(i, kNoDeadline).value();
    chunks.push_back({at.id, at.raw_size});
    if (placement.packs.empty() || placement.packs.back() != at.pack) {
      if (placement.packs.size() < 2) placement.packs.push_back(at.pack);
    }
    placement.entries.push_back(
        {at.pack == placement.packs[0] ? 0u : 1u, at.pack_offset, at.stored_size, at.is_raw});
  }
  const auto layer = encode_layer(map->header().image_size, map->header().metadata_size,
                                  map->header().root_nid, chunks)
                         .value();
  EXPECT_EQ(layer.id, image.layers[0]);
  EXPECT_EQ(layer.object, store->get(layer_key(layer.id), 1 << 20, kNoDeadline).value());
  EXPECT_TRUE(
      store->stat(placement_key(layer.id, sha256(encode_placement(placement))), kNoDeadline));
}

Status parse_as(const std::string& kind, const Bytes& bytes, const LayerHeader& golden,
                const Digest& golden_id) {
  if (kind == ".pack") {
    const size_t trailer_size = std::min<size_t>(bytes.size(), kPackTrailerBytes);
    VARVE_ASSIGN(const auto trailer,
                 parse_pack_trailer(ByteView(bytes).last(trailer_size), bytes.size()));
    VARVE_TRY(parse_pack_index(ByteView(bytes).subspan(trailer.index_offset, trailer.index_size()),
                               trailer));
  } else if (kind == ".layer") {
    VARVE_ASSIGN(const auto header, parse_layer_header(bytes));
    VARVE_ASSIGN(const auto leaves, parse_leaf_table(ByteView(bytes).subspan(kLayerHeaderFixedBytes,
                                                                             kLeafTableEntryBytes),
                                                     header, 0, 0));
    VARVE_TRY(
        parse_leaf(ByteView(bytes).subspan(header.header_size()), leaves[0], header.image_size));
  } else if (kind == ".placement") {
    VARVE_ASSIGN(const auto header, parse_placement_header(bytes, golden_id, golden.chunk_count));
    VARVE_TRY(
        parse_placement_entry(ByteView(bytes).subspan(header.header_size(), kPlacementEntryBytes),
                              header.pack_count, 8192));
  } else if (kind == ".image") {
    VARVE_TRY(parse_image(bytes));
  } else {
    ADD_FAILURE() << "no such kind: " << kind;
  }
  return {};
}

TEST(GoldenStoreTest, InputsThatMustFailFailWithTheirError) {
  const auto store = open_store(kData + "/store", false).value();
  const auto image = ImageStore(store).resolve("team/app:v1", kNoDeadline).value().image;
  const TempDir spool = TempDir::create("varve-golden-").value();
  const auto map = LayerMap::open(store, image.layers[0], spool.path(), kNoDeadline).value();
  size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kData + "/store-must-fail")) {
    if (entry.path().extension() == ".error") continue;
    ++count;
    const Bytes bytes = read_file(entry.path(), 1 << 20).value();
    const Bytes error = read_file(entry.path().string() + ".error", 4096).value();
    const Status status = parse_as(entry.path().extension(), bytes, map->header(), map->layer());
    ASSERT_FALSE(status) << entry.path();
    EXPECT_EQ(status.error().to_string() + "\n", as_text(error)) << entry.path();
  }
  EXPECT_GE(count, 30u);
}

}  // namespace
}  // namespace varve::chunkstore
