#include "chunkstore/build/pack_builder.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <random>
#include <set>
#include <thread>

#include "base/file_io.h"
#include "base/remove_tree.h"
#include "base/temp_dir.h"
#include "chunkstore/build/internal/pack_reuse.h"
#include "chunkstore/build/publish.h"
#include "chunkstore/format/keys.h"
#include "chunkstore/read/chunk_reader.h"
#include "chunkstore/read/image_store.h"
#include "chunkstore/store/closure.h"
#include "chunkstore/store/file_store.h"
#include "tests/support/crash_file_ops.h"
#include "tests/support/fault_store.h"
#include "tests/support/test_layer.h"

namespace varve::chunkstore {
namespace {

using Op = test::FaultStore::Op;

class PackBuilderTest : public ::testing::Test {
 protected:
  // In memory: these tests sync thousands of files.
  TempDir dir_ = TempDir::create("varve-pack-builder-", "/dev/shm").value();
  std::shared_ptr<Store> store_ = open_store(dir_.path() + "/store", true).value();

  PackBuilderOptions options() {
    PackBuilderOptions options;
    options.compression_level = 1;
    options.thread_count = 3;
    options.index_directory = dir_.path() + "/index";
    options.sleep = [](std::chrono::seconds) { FAIL() << "no sentence is urgent here"; };
    return options;
  }

  static Result<LayerParts> submit_all(PackBuilder& builder, const std::vector<Bytes>& chunks) {
    LayerParts parts;
    std::vector<uint64_t> ordinals;
    for (const Bytes& chunk : chunks) {
      VARVE_ASSIGN(const uint64_t ordinal, builder.submit(chunk));
      ordinals.push_back(ordinal);
    }
    VARVE_TRY(builder.drain());
    for (size_t i = 0; i < chunks.size(); ++i) {
      parts.chunks.push_back({builder.id(ordinals[i]), static_cast<uint32_t>(chunks[i].size())});
      parts.image_size += chunks[i].size();
    }
    parts.metadata_size = chunks[0].size();
    parts.root_nid = 36;
    return parts;
  }

  /// The whole path of a build: chunks, layer, image, ref.
  static Result<Digest> build(const std::shared_ptr<Store>& store, PackBuilderOptions options,
                              const std::vector<Bytes>& chunks, const std::string& ref,
                              PackBuilderStats* stats = nullptr) {
    VARVE_ASSIGN(const auto builder, PackBuilder::create(store, std::move(options)));
    VARVE_ASSIGN(const LayerParts parts, submit_all(*builder, chunks));
    VARVE_ASSIGN(const PublishedLayer layer, builder->publish_layer(parts));
    Image image;
    image.layers = {layer.id};
    VARVE_ASSIGN(const Digest id, publish_image(*store, builder->lease(), image));
    VARVE_TRY(publish_ref(*store, builder->lease(), parse_ref(ref).value(), id));
    if (stats != nullptr) *stats = builder->stats();
    VARVE_TRY(builder->lease().release());
    return layer.id;
  }

  void expect_readable(const std::shared_ptr<Store>& store, const Digest& layer,
                       const std::vector<Bytes>& chunks) {
    const auto map = LayerMap::open(store, layer, dir_.path(), kNoDeadline);
    ASSERT_TRUE(map) << map.error().to_string();
    ASSERT_EQ((*map)->header().chunk_count, chunks.size());
    ChunkReader reader(store);
    for (size_t i = 0; i < chunks.size(); ++i) {
      const auto location = (*map)->chunk(i, kNoDeadline);
      ASSERT_TRUE(location) << location.error().to_string();
      const auto raw = reader.read(**map, *location, kNoDeadline);
      ASSERT_TRUE(raw) << raw.error().to_string();
      EXPECT_EQ(*raw, chunks[i]);
    }
  }

  std::set<std::string> keys(const std::string& prefix) {
    std::set<std::string> found;
    test::must(store_->list(
        prefix,
        [&](const std::string& key, const ObjectInfo&) -> Status {
          found.insert(key);
          return {};
        },
        kNoDeadline));
    return found;
  }
};

TEST_F(PackBuilderTest, ABuiltLayerReadsBackAndTheLeaseIsGone) {
  const auto chunks = test::make_chunks(200, 1, 30'000);
  PackBuilderStats stats;
  const auto layer = build(store_, options(), chunks, "a:b", &stats);
  ASSERT_TRUE(layer) << layer.error().to_string();
  expect_readable(store_, *layer, chunks);
  EXPECT_EQ(stats.chunk_count, 200u);
  EXPECT_EQ(stats.new_chunk_count, 200u);
  EXPECT_EQ(stats.pack_count, 1u);
  EXPECT_EQ(keys("leases/"), std::set<std::string>{});
  EXPECT_EQ(ImageStore(store_).resolve("a:b", kNoDeadline).value().image.layers,
            std::vector<Digest>{*layer});
}

TEST_F(PackBuilderTest, PacksThatDoNotFitInMemoryAreLookedIntoAgain) {
  std::vector<Digest> packs;
  std::vector<std::vector<Bytes>> contents;
  for (uint32_t seed = 1; seed <= 3; ++seed) {
    contents.push_back(test::make_chunks(10, seed, 4000));
    const auto before = keys("packs/");
    ASSERT_TRUE(build(store_, options(), contents.back(), "a:" + std::to_string(seed)));
    for (const std::string& key : keys("packs/")) {
      if (!before.contains(key)) packs.push_back(*digest_of_key(key));
    }
  }
  ASSERT_EQ(packs.size(), 3u);
  const auto lease = Lease::take(store_).value();
  // Room for two of the three, then for less than one.
  for (const size_t entry_count_max : {25u, 5u}) {
    PackReuse reuse(*store_, *lease, nullptr, entry_count_max);
    for (int round = 0; round < 2; ++round) {
      for (size_t i = 0; i < packs.size(); ++i) {
        const Digest chunk = sha256(contents[i][7]);
        const auto found = reuse.find_in(packs[i], chunk);
        ASSERT_TRUE(found) << found.error().to_string();
        ASSERT_TRUE(*found);
        EXPECT_EQ((*found)->entry.id, chunk);
        EXPECT_FALSE(*reuse.find_in(packs[i], sha256(contents[(i + 1) % 3][7])));
      }
    }
  }
}

TEST_F(PackBuilderTest, RepeatedChunksAreStoredOnceAndPacksAreTheSameForAnyNumberOfThreads) {
  std::vector<Bytes> chunks = test::make_chunks(300, 1, 4000);
  std::vector<Bytes> repeated = chunks;
  for (int i = 0; i < 3; ++i) repeated.insert(repeated.end(), chunks.begin(), chunks.end());
  PackBuilderStats stats;
  const Digest layer = build(store_, options(), repeated, "a:b", &stats).value();
  EXPECT_EQ(stats.new_chunk_count, 300u);
  expect_readable(store_, layer, repeated);
  auto other = open_store(dir_.path() + "/other", true).value();
  PackBuilderOptions one = options();
  one.thread_count = 1;
  one.index_directory.reset();
  EXPECT_EQ(build(other, one, repeated, "a:b").value(), layer);
  for (const std::string& key : keys("packs/")) EXPECT_TRUE(other->stat(key, kNoDeadline)) << key;
  // In order of submission, so that neighbours in the image are neighbours in the pack.
  const auto entries =
      read_pack_index(*store_, *digest_of_key(*keys("packs/").begin()), kNoDeadline).value();
  ASSERT_EQ(entries.size(), 300u);
  for (size_t i = 0; i < 300; ++i) EXPECT_EQ(entries[i].id, sha256(chunks[i]));
}

TEST_F(PackBuilderTest, PacksStayBelowTheirLimit) {
  PackBuilderOptions small = options();
  small.pack_bytes_max = 100'000;
  const auto chunks = test::make_chunks(100, 7, 20'000);
  const Digest layer = build(store_, small, chunks, "a:b").value();
  EXPECT_GT(keys("packs/").size(), 3u);
  for (const std::string& key : keys("packs/"))
    EXPECT_LE(store_->stat(key, kNoDeadline)->size, 100'000u);
  expect_readable(store_, layer, chunks);
}

TEST_F(PackBuilderTest, ASecondBuildOfTheSameChunksAddsNoPack) {
  auto chunks = test::make_chunks(100, 1, 10'000);
  const Digest layer = build(store_, options(), chunks, "a:1").value();
  const auto packs = keys("packs/");
  PackBuilderStats stats;
  EXPECT_EQ(build(store_, options(), chunks, "a:2", &stats).value(), layer);
  EXPECT_EQ(keys("packs/"), packs);
  EXPECT_EQ(stats.reused_chunk_count, 100u);
  EXPECT_EQ(stats.new_chunk_count, 0u);
  chunks[50][0] ^= 1;
  const Digest changed = build(store_, options(), chunks, "a:3", &stats).value();
  EXPECT_NE(changed, layer);
  EXPECT_EQ(stats.new_chunk_count, 1u);
  expect_readable(store_, changed, chunks);
}

TEST_F(PackBuilderTest, ALostDamagedOrStaleIndexNeverMakesAWrongLayer) {
  const auto chunks = test::make_chunks(50, 1, 10'000);
  const Digest layer = build(store_, options(), chunks, "a:1").value();
  const std::string index = dir_.path() + "/index/0";
  // Damaged: every file of the database is overwritten.
  for (const char* name : {"CURRENT", "LOCK"})
    test::must(write_file_atomic(index + "/" + name, as_bytes("garbage")));
  PackBuilderStats stats;
  EXPECT_EQ(build(store_, options(), chunks, "a:1", &stats).value(), layer);
  EXPECT_EQ(stats.reused_chunk_count, 50u);
  // Lost.
  test::must(remove_tree(dir_.path() + "/index"));
  EXPECT_EQ(build(store_, options(), chunks, "a:1", &stats).value(), layer);
  EXPECT_EQ(stats.reused_chunk_count, 50u);
  // Stale: the pack goes after the index has been opened.
  auto builder = PackBuilder::create(store_, options()).value();
  for (const std::string& key : keys("packs/")) test::must(store_->remove(key, kNoDeadline));
  EXPECT_EQ(builder->publish_layer(submit_all(*builder, chunks).value()).value().id, layer);
  EXPECT_EQ(builder->stats().new_chunk_count, 50u);
  builder.reset();
  expect_readable(store_, layer, chunks);
}

TEST_F(PackBuilderTest, AnIndexOfAnotherDirectoryContentIsForgottenWithItsPacks) {
  const auto chunks = test::make_chunks(50, 1, 10'000);
  build(store_, options(), chunks, "a:1").value();
  build(store_, options(), chunks, "a:1").value();
  for (const std::string& key : keys("packs/")) test::must(store_->remove(key, kNoDeadline));
  PackBuilderStats stats;
  const Digest layer = build(store_, options(), chunks, "a:1", &stats).value();
  EXPECT_EQ(stats.new_chunk_count, 50u);
  expect_readable(store_, layer, chunks);
}

TEST_F(PackBuilderTest, BuildersAtTheSameTimeUseAnIndexEach) {
  const auto chunks = test::make_chunks(50, 1, 10'000);
  build(store_, options(), chunks, "a:1").value();
  auto first = PackBuilder::create(store_, options()).value();
  auto second = PackBuilder::create(store_, options());
  ASSERT_TRUE(second) << second.error().to_string();
  for (PackBuilder* builder : {first.get(), second->get()}) {
    ASSERT_TRUE(builder->publish_layer(submit_all(*builder, chunks).value()));
    EXPECT_EQ(builder->stats().reused_chunk_count, 50u);
  }
}

TEST_F(PackBuilderTest, AnIndexDirectoryThatCannotBeMadeIsNamed) {
  PackBuilderOptions bad = options();
  bad.index_directory = "/proc/no/such";
  const auto builder = PackBuilder::create(store_, bad);
  ASSERT_FALSE(builder);
  EXPECT_NE(builder.error().to_string().find("/proc/no/such"), std::string::npos);
}

TEST_F(PackBuilderTest, ACondemnedPackIsNotReused) {
  const auto chunks = test::make_chunks(50, 1, 10'000);
  build(store_, options(), chunks, "a:1").value();
  const auto packs = keys("packs/");
  const int64_t now = store_->now_s(kNoDeadline).value();
  test::must(store_->replace(tombstone_key(*packs.begin()), encode_tombstone({now + 1000, 0}),
                             kNoDeadline));
  auto different = chunks;
  different.front()[0] ^= 1;
  PackBuilderStats stats;
  build(store_, options(), different, "a:2", &stats).value();
  EXPECT_EQ(stats.new_chunk_count, 50u);
  EXPECT_EQ(keys("packs/").size(), 2u);
  // A sentence that was settled long ago does not count.
  test::must(store_->replace(tombstone_key(*packs.begin()),
                             encode_tombstone({now - 1000, now - 500}), kNoDeadline));
  build(store_, options(), chunks, "a:3", &stats).value();
  EXPECT_EQ(stats.new_chunk_count, 0u);
}

TEST_F(PackBuilderTest, PublishingWhatMayBeBeingDeletedWaitsForTheCollector) {
  const auto chunks = test::make_chunks(5, 1, 10'000);
  const Digest layer = build(store_, options(), chunks, "a:1").value();
  const int64_t now = store_->now_s(kNoDeadline).value();
  test::must(store_->replace(tombstone_key(layer_key(layer)), encode_tombstone({now - 1, 0}),
                             kNoDeadline));
  PackBuilderOptions waiting = options();
  int wait_count = 0;
  waiting.sleep = [&](std::chrono::seconds duration) {
    ++wait_count;
    EXPECT_GT(duration.count(), kDeletionWindowS);
    // The collector deletes it just now.
    test::must(store_->remove(layer_key(layer), kNoDeadline));
  };
  auto builder = PackBuilder::create(store_, waiting).value();
  EXPECT_EQ(builder->publish_layer(submit_all(*builder, chunks).value()).value().id, layer);
  EXPECT_EQ(wait_count, 1);
  expect_readable(store_, layer, chunks);
}

TEST_F(PackBuilderTest, TheLeaseListsAPackBeforeThePackIsPublished) {
  std::vector<std::string> unleased;
  int pack_count = 0;
  auto watching =
      std::make_shared<test::FaultStore>(store_, [&](Op op, std::string_view key) -> Status {
        if (op != Op::kPublish) return {};
        ++pack_count;
        bool found = false;
        for (const std::string& lease : keys("leases/")) {
          const auto record =
              parse_lease(store_->get(lease, kLeaseBytesMax, kNoDeadline).value()).value();
          found |= std::ranges::count(record.objects, std::string(key)) != 0;
        }
        if (!found) unleased.emplace_back(key);
        return {};
      });
  ASSERT_TRUE(build(watching, options(), test::make_chunks(20, 1, 10'000), "a:b"));
  EXPECT_EQ(pack_count, 1);
  EXPECT_EQ(unleased, std::vector<std::string>{});
}

TEST_F(PackBuilderTest, ALeaseIsRenewedUntilItIsReleased) {
  auto lease = Lease::take(store_, 3).value();
  const std::string key = lease_key(lease->uuid());
  const auto expiry = [&] {
    return parse_lease(store_->get(key, kLeaseBytesMax, kNoDeadline).value()).value().expires_s;
  };
  const int64_t first = expiry();
  while (expiry() == first) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_GT(expiry(), first);
  ASSERT_TRUE(lease->release());
  EXPECT_EQ(store_->stat(key, kNoDeadline).error().code(), ErrorCode::kNotFound);
}

TEST_F(PackBuilderTest, ALeaseIsNotWrittenTwiceInARow) {
  std::atomic<int> writes{0};
  auto store = std::make_shared<test::FaultStore>(store_, [&](auto op, std::string_view key) {
    writes += op == test::FaultStore::Op::kReplace && key.starts_with("leases/");
    return Status();
  });
  auto lease = Lease::take(store).value();
  EXPECT_EQ(writes, 1);
  const std::string key = "packs/aa/aa";
  ASSERT_TRUE(lease->add({&key, 1}));
  EXPECT_EQ(writes, 2);
  ASSERT_TRUE(lease->renew());
  EXPECT_EQ(writes, 2);
  store->advance_clock(kLeaseTtlS / 3 + 1);
  ASSERT_TRUE(lease->renew());
  EXPECT_EQ(writes, 3);
  ASSERT_TRUE(lease->renew());
  EXPECT_EQ(writes, 3);
  store->advance_clock(kLeaseTtlS);
  EXPECT_EQ(lease->renew().error().code(), ErrorCode::kUnavailable);
}

TEST_F(PackBuilderTest, ALapsedLeaseEndsTheBuild) {
  auto store = std::make_shared<test::FaultStore>(store_);
  auto builder = PackBuilder::create(store, options()).value();
  const auto parts = submit_all(*builder, test::make_chunks(5, 1)).value();
  store->advance_clock(kLeaseTtlS + 1);
  const auto published = builder->publish_layer(parts);
  ASSERT_FALSE(published);
  EXPECT_EQ(published.error().code(), ErrorCode::kUnavailable);
  EXPECT_NE(published.error().to_string().find("lapsed"), std::string::npos)
      << published.error().to_string();
  EXPECT_EQ(keys("layers/"), std::set<std::string>{});
}

TEST_F(PackBuilderTest, AFailureOfThePipelineReachesTheProducerAtOnce) {
  auto failing = std::make_shared<test::FaultStore>(store_, [&](Op op, std::string_view) -> Status {
    if (op == Op::kWrite) return fail(ErrorCode::kNoSpace, "no space left");
    return {};
  });
  auto builder = PackBuilder::create(failing, options()).value();
  Result<uint64_t> result = 0;
  for (uint64_t i = 0; result; ++i) {
    Bytes chunk(100'000);
    store_le<uint64_t>(chunk.data(), i);
    result = builder->submit(std::move(chunk));
    ASSERT_LT(i, 100'000u);
  }
  EXPECT_EQ(result.error().code(), ErrorCode::kNoSpace);
  EXPECT_EQ(builder->drain().error().code(), ErrorCode::kNoSpace);
  EXPECT_FALSE(builder->publish_layer({}));
}

TEST_F(PackBuilderTest, SubmitWaitsWhileThePipelineIsFull) {
  std::atomic<bool> is_held{true};
  auto slow = std::make_shared<test::FaultStore>(store_, [&](Op op, std::string_view) -> Status {
    while (op == Op::kWrite && is_held) std::this_thread::yield();
    return {};
  });
  PackBuilderOptions small = options();
  small.in_flight_bytes_max = 1'010'000;  // ten of them and what each takes besides
  auto builder = PackBuilder::create(slow, small).value();
  std::atomic<uint64_t> submitted_count{0};
  std::thread producer([&] {
    std::mt19937_64 random;
    for (uint64_t i = 0; i < 30; ++i) {
      Bytes chunk;
      while (chunk.size() < 100'000) append_le<uint64_t>(chunk, random());
      ASSERT_TRUE(builder->submit(std::move(chunk)));
      ++submitted_count;
    }
  });
  while (submitted_count < 10) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(submitted_count, 10u);
  is_held = false;
  producer.join();
  EXPECT_TRUE(builder->drain());
  EXPECT_EQ(builder->stats().chunk_count, 30u);
}

TEST_F(PackBuilderTest, AdoptedLayersAreNamedWithoutMovingTheirBytesUnlessCondemned) {
  const auto chunks = test::make_chunks(60, 1, 10'000);
  const Digest layer = build(store_, options(), chunks, "a:1").value();
  PackBuilderOptions no_index = options();
  no_index.index_directory.reset();
  std::vector<Bytes> other = test::make_chunks(3, 9, 5000);
  std::vector<Bytes> both = other;
  both.insert(both.end(), chunks.begin(), chunks.end());
  for (const bool is_condemned : {false, true}) {
    if (is_condemned) {
      const int64_t now = store_->now_s(kNoDeadline).value();
      test::must(store_->replace(
          tombstone_key(
              pack_key(read_placement_packs(
                           *store_, read_layer_header(*store_, layer, kNoDeadline).value(), layer,
                           read_current_placement(*store_, layer, kNoDeadline).value(), kNoDeadline)
                           .value()[0])),
          encode_tombstone({now + 1000, 0}), kNoDeadline));
    }
    auto map = LayerMap::open(store_, layer, dir_.path(), kNoDeadline).value();
    auto builder = PackBuilder::create(store_, no_index).value();
    LayerParts parts = submit_all(*builder, other).value();
    for (const Bytes& chunk : chunks) {
      parts.chunks.push_back({sha256(chunk), static_cast<uint32_t>(chunk.size())});
      parts.image_size += chunk.size();
    }
    const auto refused = builder->publish_layer(parts);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code(), ErrorCode::kInvalidArgument);
    ASSERT_TRUE(builder->adopt(*map));
    const auto published = builder->publish_layer(parts);
    ASSERT_TRUE(published) << published.error().to_string();
    EXPECT_EQ(builder->stats().new_chunk_count, is_condemned ? 63u : 3u);
    expect_readable(store_, published->id, both);
  }
}

TEST_F(PackBuilderTest, AnImageOfAMissingLayerOrPackIsRefused) {
  auto lease = Lease::take(store_).value();
  Image image;
  image.layers = {Digest{}};
  EXPECT_EQ(publish_image(*store_, *lease, image).error().code(), ErrorCode::kNotFound);
  EXPECT_EQ(publish_ref(*store_, *lease, parse_ref("a:b").value(), Digest{}).error().code(),
            ErrorCode::kNotFound);
  image.layers = {build(store_, options(), test::make_chunks(5, 1), "a:1").value()};
  test::must(store_->remove(*keys("packs/").begin(), kNoDeadline));
  EXPECT_EQ(publish_image(*store_, *lease, image).error().code(), ErrorCode::kNotFound);
  EXPECT_EQ(keys("refs/"), std::set<std::string>{"refs/a:1"});
}

TEST_F(PackBuilderTest, ABuildCutBeforeAnyStepLeavesNothingVisibleOrEverythingReadable) {
  const auto chunks = test::make_chunks(12, 3, 20'000);
  for (const int errno_value : {EIO, ENOSPC}) {
    uint64_t step = 1;
    for (bool is_cut = true; is_cut; ++step) {
      test::must(remove_tree(dir_.path() + "/store"));
      store_ = open_store(dir_.path() + "/store", true).value();
      const UniqueFd root = open_file(dir_.path() + "/store", O_RDONLY | O_DIRECTORY).value();
      test::CrashFileOps ops(root.get(), step, errno_value);
      PackBuilderOptions small = options();
      small.thread_count = 1;
      small.pack_bytes_max = 60'000;
      small.index_directory.reset();
      Result<Digest> built = Digest{};
      {
        const auto crashing = open_file_store(dir_.path() + "/store", false, ops).value();
        built = build(crashing, small, chunks, "a:b");
      }
      is_cut = ops.crashed();
      if (is_cut && !built && errno_value == ENOSPC) {
        EXPECT_EQ(built.error().code(), ErrorCode::kNoSpace) << built.error().to_string();
      }
      ops.lose_unsynced();
      const auto reopened = open_store(dir_.path() + "/store", false).value();
      const auto image = ImageStore(reopened).resolve("a:b", kNoDeadline);
      EXPECT_TRUE(image || !built) << "acknowledged, then lost; step " << step;
      if (image) expect_readable(reopened, image->image.layers[0], chunks);
      // Whatever is visible is whole; and the same build succeeds now.
      for (const std::string& key : keys("layers/"))
        expect_readable(reopened, *digest_of_key(key), chunks);
      if (step % 10 == 0) {
        EXPECT_TRUE(build(reopened, small, chunks, "a:b"));
      }
    }
    EXPECT_GT(step, 40u);
  }
}

}  // namespace
}  // namespace varve::chunkstore
