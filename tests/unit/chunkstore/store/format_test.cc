#include <gtest/gtest.h>
#include <zstd.h>

#include <algorithm>
#include <random>

#include "chunkstore/format/chunk.h"
#include "chunkstore/format/image.h"
#include "chunkstore/format/keys.h"
#include "chunkstore/format/layer.h"
#include "chunkstore/format/lease.h"
#include "chunkstore/format/pack.h"
#include "chunkstore/format/placement.h"
#include "chunkstore/format/ref.h"

namespace varve::chunkstore {
namespace {

Bytes random_bytes(size_t size, uint32_t seed) {
  std::mt19937 random(seed);
  Bytes bytes(size);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
  return bytes;
}

Bytes text_bytes(size_t size) {
  Bytes bytes(size);
  for (size_t i = 0; i < size; ++i)
    bytes[i] = static_cast<uint8_t>("the same words again "[i % 21]);
  return bytes;
}

/// Words of a small vocabulary in random order: what levels differ in.
/// @param value_count  Distinct byte values that they are made of.
Bytes prose_bytes(size_t size, uint32_t value_count = 26) {
  std::mt19937 random(1);
  Bytes bytes;
  while (bytes.size() < size) {
    std::mt19937 word(static_cast<uint32_t>(random() % 2000));
    for (size_t letters = 2 + word() % 9; letters > 0; --letters)
      bytes.push_back(static_cast<uint8_t>('a' + word() % value_count));
    bytes.push_back(' ');
  }
  bytes.resize(size);
  return bytes;
}

std::string error_of(const Status& status) {
  return status ? "no error" : status.error().to_string();
}
template <class T>
std::string error_of(const Result<T>& result) {
  return result ? "no error" : result.error().to_string();
}

TEST(ChunkCodecTest, ReturnsTheSameBytesCompressedOrRaw) {
  ChunkEncoder encoder(3);
  ChunkDecoder decoder;
  for (const Bytes& raw : {Bytes{7}, text_bytes(2), text_bytes(100'000), random_bytes(100'000, 1),
                           Bytes(kChunkBytesMax, 0), random_bytes(kChunkBytesMax, 2)}) {
    const StoredChunk stored = encoder.encode(raw);
    EXPECT_EQ(stored.is_raw, stored.bytes.size() == raw.size());
    EXPECT_LE(stored.bytes.size(), raw.size());
    Bytes back(raw.size());
    ASSERT_TRUE(decoder.decode(stored.bytes, stored.is_raw, sha256(raw), back));
    EXPECT_EQ(back, raw);
  }
  EXPECT_FALSE(encoder.encode(text_bytes(100'000)).is_raw);
  EXPECT_TRUE(encoder.encode(random_bytes(100'000, 1)).is_raw);
}

TEST(ChunkCodecTest, ALevelIsZstdsOwnAndTheDefaultIsOneOfOurs) {
  ChunkDecoder decoder;
  for (const size_t size : {100'000, 200'000}) {
    for (const uint32_t value_count : {26, 256}) {
      const Bytes raw = prose_bytes(size, value_count);
      for (const int level : {1, 2, 3, 19}) {
        Bytes frame(ZSTD_compressBound(raw.size()));
        frame.resize(ZSTD_compress(frame.data(), frame.size(), raw.data(), raw.size(), level));
        EXPECT_EQ(ChunkEncoder(level).encode(raw).bytes, frame) << size << " bytes at " << level;
      }
      const Bytes level_3 = ChunkEncoder(3).encode(raw).bytes;
      const StoredChunk stored = ChunkEncoder(kCompressionLevelDefault).encode(raw);
      EXPECT_NE(stored.bytes, level_3);
      EXPECT_LT(stored.bytes.size(), level_3.size() + level_3.size() / 10);
      Bytes back(raw.size());
      ASSERT_TRUE(decoder.decode(stored.bytes, stored.is_raw, sha256(raw), back));
    }
  }
}

TEST(ChunkCodecTest, AChunksFrameDoesNotDependOnTheChunksBefore) {
  ChunkEncoder encoder(kCompressionLevelDefault);
  for (const size_t size : {100'000, 200'000, 50'000, 10, 1, 1023, 1024, 1025}) {
    for (const uint32_t value_count : {26, 159, 160, 161, 256}) {
      const Bytes raw = prose_bytes(size, value_count);
      EXPECT_EQ(encoder.encode(raw).bytes, ChunkEncoder(kCompressionLevelDefault).encode(raw).bytes)
          << size << " bytes of " << value_count << " values";
    }
  }
}

TEST(ChunkCodecTest, NeverWritesMoreThanTheChunkSizeWhateverTheFrameSays) {
  ChunkEncoder encoder(3);
  ChunkDecoder decoder;
  const Bytes raw = text_bytes(100'000);
  const StoredChunk stored = encoder.encode(raw);
  Bytes small(99'999);
  EXPECT_EQ(decoder.decode(stored.bytes, false, sha256(raw), small).error().code(),
            ErrorCode::kCorruption);
  Bytes large(100'001);
  EXPECT_EQ(error_of(decoder.decode(stored.bytes, false, sha256(raw), large)),
            "decompresses to 100000 bytes instead of 100001");
}

TEST(ChunkCodecTest, ReportsAWrongHashACutFrameAndAWrongRawSize) {
  ChunkEncoder encoder(3);
  ChunkDecoder decoder;
  const Bytes raw = text_bytes(5000);
  const StoredChunk stored = encoder.encode(raw);
  Bytes back(raw.size());
  EXPECT_NE(error_of(decoder.decode(stored.bytes, false, Digest{}, back)).find(sha256(raw).hex()),
            std::string::npos);
  EXPECT_FALSE(decoder.decode(ByteView(stored.bytes).first(stored.bytes.size() - 1), false,
                              sha256(raw), back));
  EXPECT_FALSE(decoder.decode(ByteView(), false, sha256(raw), back));
  EXPECT_FALSE(decoder.decode(ByteView(raw).first(4999), true, sha256(raw), back));
}

TEST(ChunkCodecTest, DecodesSeveralAtATimeAndTellsWhichAreDamaged) {
  ChunkEncoder encoder(3);
  ChunkDecoder decoder;
  std::vector<Bytes> raws, backs;
  std::vector<StoredChunk> stored;
  std::vector<ChunkToDecode> chunks;
  for (const size_t size : {5000u, 1u, 131'072u, 700u, 40'000u, 64u}) {
    raws.push_back(text_bytes(size));
    stored.push_back(encoder.encode(raws.back()));
    backs.emplace_back(size);
  }
  for (size_t i = 0; i < raws.size(); ++i) {
    chunks.push_back({stored[i].bytes, stored[i].is_raw, sha256(raws[i]), backs[i]});
  }
  chunks[1].id = Digest{};
  chunks[2].stored = chunks[2].stored.first(chunks[2].stored.size() - 1);
  const auto results = decoder.decode_all(chunks);
  ASSERT_EQ(results.size(), raws.size());
  for (size_t i = 0; i < raws.size(); ++i) {
    EXPECT_EQ(results[i].has_value(), i != 1 && i != 2) << i;
    if (results[i]) {
      EXPECT_EQ(backs[i], raws[i]) << i;
    }
  }
  EXPECT_EQ(results[2].error().code(), ErrorCode::kCorruption);
  EXPECT_TRUE(decoder.decode_all({}).empty());
}

std::vector<PackEntry> sample_entries() {
  return {{sha256(as_bytes("a")), 0, 10, 10, true}, {sha256(as_bytes("b")), 10, 20, 4096, false}};
}

TEST(PackFormatTest, TailRoundTrips) {
  const Bytes tail = encode_pack_tail(sample_entries(), {1, 2});
  const uint64_t pack_size = 30 + tail.size();
  const auto trailer =
      parse_pack_trailer(ByteView(tail).last(kPackTrailerBytes), pack_size).value();
  EXPECT_EQ(trailer.index_offset, 30u);
  EXPECT_EQ(trailer.stored_hash, (Xxh128{1, 2}).canonical());
  EXPECT_EQ(parse_pack_index(ByteView(tail).first(trailer.index_size()), trailer).value(),
            sample_entries());
}

TEST(PackFormatTest, ThePacksNameIsThatOfItsTrailerAndCoversTheIndex) {
  const Bytes tail = encode_pack_tail(sample_entries(), {1, 2});
  Bytes pack(30 + tail.size(), 7);
  std::ranges::copy(tail, pack.begin() + 30);
  EXPECT_EQ(pack_id(pack), pack_id(tail));
  EXPECT_EQ(pack_id(pack), sha256(ByteView(pack).last(80)));
  auto entries = sample_entries();
  entries[0].id.bytes[0] ^= 1;
  EXPECT_NE(pack_id(encode_pack_tail(entries, {1, 2})), pack_id(tail));
  for (size_t at = tail.size() - kPackTrailerBytes; at < tail.size(); ++at) {
    Bytes damaged = tail;
    damaged[at] ^= 1;
    EXPECT_NE(pack_id(damaged), pack_id(tail)) << "byte " << at;
  }
}

TEST(PackFormatTest, RefusesATailThatDoesNotFitThePack) {
  const Bytes tail = encode_pack_tail(sample_entries(), {1, 2});
  const ByteView trailer = ByteView(tail).last(kPackTrailerBytes);
  EXPECT_FALSE(parse_pack_trailer(trailer, 30 + tail.size() + 1));
  EXPECT_FALSE(parse_pack_trailer(trailer, 30 + tail.size() - 1));
  EXPECT_FALSE(parse_pack_trailer(trailer, kPackTrailerBytes));
  EXPECT_FALSE(parse_pack_trailer(trailer, UINT64_MAX));
  EXPECT_FALSE(parse_pack_trailer(trailer.first(79), 30 + tail.size()));
  Bytes huge(trailer.begin(), trailer.end());
  store_le<uint64_t>(huge.data() + 24, UINT64_MAX - 95);
  EXPECT_EQ(parse_pack_trailer(huge, 30 + tail.size()).error().code(), ErrorCode::kCorruption);
}

TEST(PackFormatTest, EveryFlippedBitOfTheIndexIsNoticed) {
  const Bytes tail = encode_pack_tail(sample_entries(), {1, 2});
  const uint64_t pack_size = 30 + tail.size();
  for (size_t bit = 0; bit < tail.size() * 8; ++bit) {
    Bytes damaged = tail;
    damaged[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
    const auto trailer = parse_pack_trailer(ByteView(damaged).last(kPackTrailerBytes), pack_size);
    // The compat word is ignored, and the hash of the stored chunks says nothing of the index.
    const size_t trailer_byte = bit / 8 - 2 * kPackEntryBytes;
    if (bit / 8 >= 2 * kPackEntryBytes &&
        ((trailer_byte >= 12 && trailer_byte < 16) || trailer_byte >= 64)) {
      EXPECT_TRUE(trailer);
      continue;
    }
    if (!trailer) continue;
    EXPECT_FALSE(parse_pack_index(ByteView(damaged).first(trailer->index_size()), *trailer))
        << "bit " << bit;
  }
}

TEST(PackFormatTest, RefusesEntriesThatOverlapOrHaveImpossibleSizes) {
  const auto parse_with = [](size_t at, uint32_t value) {
    Bytes tail = encode_pack_tail(sample_entries(), {1, 2});
    store_le<uint32_t>(tail.data() + at, value);
    const size_t index_size = 2 * kPackEntryBytes;
    const Digest digest = sha256(ByteView(tail).first(index_size));
    std::ranges::copy(digest.bytes, tail.data() + index_size + 32);
    const auto trailer =
        parse_pack_trailer(ByteView(tail).last(kPackTrailerBytes), 30 + tail.size()).value();
    return error_of(parse_pack_index(ByteView(tail).first(index_size), trailer));
  };
  EXPECT_EQ(parse_with(32, 1), "index entry 0: offset is 1, not 0");
  EXPECT_EQ(parse_with(48 + 32, 9), "index entry 1: offset is 9, not 10");
  EXPECT_EQ(parse_with(36, 11),
            "index entry 0: stored size 11 does not fit raw size 10 stored raw");
  EXPECT_EQ(parse_with(48 + 36, 0), "index entry 1: stored size 0 does not fit raw size 4096");
  EXPECT_EQ(parse_with(48 + 36, 21), "chunks end at offset 31, the index begins at 30");
  EXPECT_EQ(parse_with(48 + 40, 1 << 21), "index entry 1: raw size 2097152 is outside 1 … 1048576");
  EXPECT_EQ(parse_with(44, 2), "index entry 0: unknown flags 0x2");
}

std::vector<LayerChunk> sample_chunks(size_t count) {
  std::vector<LayerChunk> chunks;
  for (size_t i = 0; i < count; ++i) {
    chunks.push_back({sha256(as_bytes(std::to_string(i))), 4096});
  }
  return chunks;
}

TEST(LayerFormatTest, HeaderAndLeavesRoundTrip) {
  const auto chunks = sample_chunks(2050);
  const auto layer = encode_layer(2050 * 4096, 8192, 36, chunks).value();
  const auto header = parse_layer_header(layer.object).value();
  EXPECT_EQ(header.leaf_count(), 3u);
  EXPECT_EQ(header.object_size(), layer.object.size());
  EXPECT_EQ(sha256(ByteView(layer.object).first(header.header_size())), layer.id);
  const auto leaves =
      parse_leaf_table(
          ByteView(layer.object).subspan(kLayerHeaderFixedBytes, 3 * kLeafTableEntryBytes), header,
          0, 0)
          .value();
  std::vector<LayerChunk> back;
  for (uint32_t leaf = 0; leaf < 3; ++leaf) {
    const uint64_t end = leaf < 2 ? leaves[leaf + 1].first_offset : header.image_size;
    const ByteView page = ByteView(layer.object)
                              .subspan(header.leaf_page_offset(leaf),
                                       header.leaf_entry_count(leaf) * kLeafEntryBytes);
    const auto entries = parse_leaf(page, leaves[leaf], end - leaves[leaf].first_offset).value();
    back.insert(back.end(), entries.begin(), entries.end());
  }
  ASSERT_EQ(back.size(), chunks.size());
  for (size_t i = 0; i < back.size(); ++i) EXPECT_EQ(back[i].id, chunks[i].id);
}

TEST(LayerFormatTest, EncodingRefusesSumsThatDoNotFit) {
  EXPECT_FALSE(encode_layer(4096, 4096, 36, {}));
  EXPECT_FALSE(encode_layer(8192, 4096, 36, sample_chunks(1)));
  EXPECT_FALSE(encode_layer(4096, 100, 36, sample_chunks(1)));
  EXPECT_FALSE(encode_layer(8192, 8192, 0, sample_chunks(2)));
  EXPECT_EQ(encode_layer(8191, 8191, 1, sample_chunks(2)).error().code(),
            ErrorCode::kInvalidArgument);
}

TEST(LayerFormatTest, RefusesUnknownIncompatibleFeaturesByBitAndIgnoresCompatibleOnes) {
  Bytes object = encode_layer(4096, 4096, 36, sample_chunks(1)).value().object;
  store_le<uint32_t>(object.data() + 12, 0xffffffff);
  EXPECT_TRUE(parse_layer_header(object));
  store_le<uint32_t>(object.data() + 16, 0b1010);
  EXPECT_EQ(error_of(parse_layer_header(object)),
            "needs incompatible feature bits 1, 3, which this program does not know");
  EXPECT_EQ(parse_layer_header(object).error().code(), ErrorCode::kUnsupported);
  store_le<uint32_t>(object.data() + 8, 2);
  EXPECT_EQ(error_of(parse_layer_header(object)),
            "format version 2 is not known to this program, which reads version 1");
}

TEST(LayerFormatTest, RefusesHeadersWithImpossibleCounts) {
  const Bytes good = encode_layer(4096, 4096, 36, sample_chunks(1)).value().object;
  const auto with_u64 = [&](size_t at, uint64_t value) {
    Bytes object = good;
    store_le<uint64_t>(object.data() + at, value);
    return parse_layer_header(object);
  };
  EXPECT_FALSE(with_u64(24, 0));
  EXPECT_FALSE(with_u64(24, 4097));
  EXPECT_FALSE(with_u64(24, uint64_t{1} << 60));
  EXPECT_FALSE(with_u64(32, 4097));
  EXPECT_FALSE(with_u64(40, 0));
  EXPECT_FALSE(with_u64(40, UINT64_MAX));
  EXPECT_FALSE(with_u64(40, 5000));
  EXPECT_FALSE(with_u64(48, uint64_t{36} << 32 | 2));
  EXPECT_FALSE(with_u64(48, uint64_t{70000} << 32 | 1));
  EXPECT_FALSE(parse_layer_header(ByteView(good).first(63)));
}

TEST(LayerFormatTest, RefusesLeafTablesThatDoNotRise) {
  const auto layer = encode_layer(2050 * 4096, 4096, 36, sample_chunks(2050)).value();
  const auto header = parse_layer_header(layer.object).value();
  Bytes table(layer.object.begin() + 64, layer.object.begin() + 64 + 120);
  EXPECT_TRUE(parse_leaf_table(table, header, 0, 0));
  store_le<uint64_t>(table.data() + 40 + 32, 0);
  EXPECT_EQ(error_of(parse_leaf_table(table, header, 0, 0)), "leaf 1 begins at image offset 0");
  store_le<uint64_t>(table.data() + 40 + 32, header.image_size);
  EXPECT_FALSE(parse_leaf_table(table, header, 0, 0));
}

TEST(PlacementFormatTest, RoundTripsAndChecksAgainstItsLayer) {
  const Digest layer = sha256(as_bytes("layer"));
  const Placement placement{
      layer, {sha256(as_bytes("p"))}, {{0, 0, 100, false}, {0, 100, 4096, true}}, 4196};
  const Bytes object = encode_placement(placement);
  const auto header = parse_placement_header(object, layer, 2).value();
  EXPECT_EQ(header.object_size(), object.size());
  EXPECT_EQ(header.stored_bytes, 4196u);
  const ByteView entries = ByteView(object).subspan(header.header_size());
  EXPECT_EQ(parse_placement_entry(entries.first(16), 1, 4096).value(), placement.entries[0]);
  EXPECT_EQ(parse_placement_entry(entries.subspan(16), 1, 4096).value(), placement.entries[1]);
  EXPECT_FALSE(parse_placement_entry(entries.subspan(16), 1, 4095));
  EXPECT_FALSE(parse_placement_entry(entries.first(16), 0, 4096));
  EXPECT_FALSE(parse_placement_header(object, Digest{}, 2));
  EXPECT_FALSE(parse_placement_header(object, layer, 3));
  EXPECT_FALSE(parse_placement_header(ByteView(object).first(95), layer, 2));
}

TEST(PlacementFormatTest, RefusesOffsetsBeyondTheLargestPack) {
  Bytes entry(16);
  store_le<uint32_t>(entry.data() + 4, kPackBytesMax - 99);
  store_le<uint32_t>(entry.data() + 8, 100);
  EXPECT_FALSE(parse_placement_entry(entry, 1, 4096));
  store_le<uint32_t>(entry.data() + 4, UINT32_MAX);
  EXPECT_FALSE(parse_placement_entry(entry, 1, 4096));
}

TEST(PointerFormatTest, TakesSixtyFourDigitsAndANewlineOnly) {
  const Digest digest = sha256(as_bytes("x"));
  EXPECT_EQ(parse_pointer(as_bytes(encode_pointer(digest))).value(), digest);
  EXPECT_FALSE(parse_pointer(as_bytes(digest.hex())));
  EXPECT_FALSE(parse_pointer(as_bytes(digest.hex() + "\n\n")));
  EXPECT_FALSE(parse_pointer({}));
}

Image sample_image() {
  Image image;
  image.layers = {sha256(as_bytes("1")), sha256(as_bytes("2"))};
  image.config.env = {"PATH=/bin", "X=a=b \"q\" \\ \x01 \xc3\xa9"};
  image.config.cwd = "/";
  image.config.user = "1000:1000";
  image.config.entrypoint = {"/init"};
  image.config.cmd = {"sh", "-c", "echo\n"};
  image.config.labels = {{"b", "2"}, {"a", "1"}};
  image.ids = {70000, 4294967294u};
  return image;
}

TEST(ImageFormatTest, RoundTripsAndIsCanonical) {
  const Bytes bytes = encode_image(sample_image()).value();
  EXPECT_EQ(parse_image(bytes).value(), sample_image());
  const std::string_view text = as_text(bytes);
  EXPECT_TRUE(text.starts_with("{\"config\":{\"Cmd\":[\"sh\",\"-c\",\"echo\\n\"],\"Entrypoint\""))
      << text;
  EXPECT_NE(text.find("a=b \\\"q\\\" \\\\ \\u0001 \xc3\xa9"), std::string_view::npos) << text;
  EXPECT_TRUE(text.ends_with("\"type\":\"varve.image\",\"version\":1}")) << text;
}

TEST(ImageFormatTest, RefusesEverySpellingButTheCanonicalOne) {
  const std::string layer = sha256(as_bytes("1")).hex();
  const std::string good =
      R"({"config":{},"ids":[],"layers":[")" + layer + R"("],"type":"varve.image","version":1})";
  ASSERT_TRUE(parse_image(as_bytes(good))) << error_of(parse_image(as_bytes(good)));
  for (const auto& [from, to] : std::vector<std::pair<std::string, std::string>>{
           {"\"config\":{}", "\"config\": {}"},
           {"\"version\":1", "\"version\":1.0"},
           {"\"version\":1", "\"version\":1e0"},
           {"\"version\":1", "\"version\":1,\"version\":1"},
           {"varve.image", "varve\\u002eimage"},
           {"{\"config\":{},\"ids\":[]", "{\"ids\":[],\"config\":{}"},
           {"\"ids\":[]", "\"ids\":[65535]"},
           {"\"ids\":[]", "\"ids\":[70001,70000]"},
           {"\"ids\":[]", "\"ids\":[4294967296]"},
           {"\"ids\":[]", "\"ids\":[-1]"},
           {"\"config\":{}", "\"config\":{\"Env\":[\"X\"]}"},
           {"\"config\":{}", "\"config\":{\"Env\":[\"X=\\u0000\"]}"},
           {"\"config\":{}", "\"config\":{\"Env\":[\"X=\xff\"]}"},
           {"\"config\":{}", "\"config\":[]"},
           {"\"layers\":[\"" + layer + "\"]", "\"layers\":[]"},
           {"\"config\":{}", "\"config\":{\"a\":[[[[[[[[[[]]]]]]]]]]}"}}) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    EXPECT_FALSE(parse_image(as_bytes(text))) << text;
  }
  EXPECT_FALSE(parse_image(as_bytes(good + "\n")));
  EXPECT_FALSE(parse_image(Bytes(kImageJsonBytesMax + 1, ' ')));
}

TEST(ImageFormatTest, NamesUnknownIncompatibleFeaturesAndIgnoresUnknownMembers) {
  const std::string layer = sha256(as_bytes("1")).hex();
  const auto image = [&](const std::string& extra, const std::string& version) {
    return R"({"config":{},"ids":[],)" + extra + R"("layers":[")" + layer +
           R"("],"type":"varve.image","version":)" + version + "}";
  };
  EXPECT_EQ(error_of(parse_image(as_bytes(image(R"("incompat":["sealed"],)", "1")))),
            "needs the incompatible features 'sealed', which this program does not know");
  EXPECT_EQ(parse_image(as_bytes(image("", "2"))).error().code(), ErrorCode::kUnsupported);
  EXPECT_TRUE(parse_image(as_bytes(image(R"("kind":{"x":1},)", "1"))));
}

TEST(ImageFormatTest, EncodingRefusesTextThatIsNotUtf8) {
  Image image = sample_image();
  image.config.env.push_back("BAD=\xff");
  EXPECT_EQ(error_of(encode_image(image)),
            "environment entry 'BAD=\\xff' is not UTF-8 without NUL");
  image = sample_image();
  image.layers.clear();
  EXPECT_EQ(encode_image(image).error().code(), ErrorCode::kInvalidArgument);
  image = sample_image();
  image.ids = {1000};
  EXPECT_FALSE(encode_image(image));
}

TEST(RefTest, ParsesNameAndTag) {
  EXPECT_EQ(parse_ref("debian").value().to_string(), "debian:latest");
  EXPECT_EQ(parse_ref("team/app-x_1.2:V1.0-rc_1").value().tag, "V1.0-rc_1");
  EXPECT_EQ(parse_ref("a__b/c--d").value().name, "a__b/c--d");
}

TEST(RefTest, RefusesNamesThatCouldLeaveTheirDirectoryOrCannotBeTold) {
  const std::string hex(64, 'a');
  for (const std::string& text : {std::string(),          std::string(":x"),
                                  std::string("a:"),      std::string("a:b:c"),
                                  std::string("../a"),    std::string("a/../b"),
                                  std::string("/a"),      std::string("a/"),
                                  std::string("a//b"),    std::string("A"),
                                  std::string("a:.x"),    std::string("a:-x"),
                                  std::string("a:b/c"),   std::string("a\0b", 3),
                                  std::string("a b"),     hex,
                                  std::string(256, 'a'),  std::string("a:") + std::string(129, 'b'),
                                  std::string("a___b"),   std::string("a._b"),
                                  std::string("\xc3\xa9")}) {
    EXPECT_EQ(parse_ref(text).has_value(), false) << text;
  }
}

TEST(KeyTest, KeysAreAsTheManPageSays) {
  const Digest digest = sha256(as_bytes(""));
  EXPECT_EQ(pack_key(digest), "packs/e3/" + digest.hex());
  EXPECT_EQ(tombstone_key(pack_key(digest)), "tombstones/packs/e3/" + digest.hex());
  EXPECT_EQ(ref_key(parse_ref("a/b:c").value()), "refs/a/b:c");
  EXPECT_EQ(digest_of_key(pack_key(digest)), digest);
  EXPECT_FALSE(digest_of_key(current_placement_key(digest)));
}

TEST(LeaseFormatTest, LeasesTombstonesAndMarkersRoundTrip) {
  const LeaseRecord lease{1234567890123, {"layers/a", "packs/b"}};
  const auto back = parse_lease(encode_lease(lease)).value();
  EXPECT_EQ(back.expires_s, lease.expires_s);
  EXPECT_EQ(back.objects, lease.objects);
  EXPECT_EQ(parse_tombstone(encode_tombstone({5, 6})).value().settled_s, 6);
  const std::string uuid = random_uuid();
  EXPECT_TRUE(is_uuid(uuid)) << uuid;
  EXPECT_EQ(parse_store_marker(encode_store_marker({uuid})).value().id, uuid);
  EXPECT_FALSE(parse_lease(encode_tombstone({5, 6})));
  EXPECT_FALSE(parse_store_marker(encode_store_marker({"../../etc"})));
}

}  // namespace
}  // namespace varve::chunkstore
