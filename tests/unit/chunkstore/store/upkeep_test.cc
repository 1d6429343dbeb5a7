#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include "base/file_io.h"
#include "base/remove_tree.h"
#include "base/temp_dir.h"
#include "chunkstore/build/publish.h"
#include "chunkstore/format/keys.h"
#include "chunkstore/format/layer.h"
#include "chunkstore/format/lease.h"
#include "chunkstore/format/pack.h"
#include "chunkstore/read/image_store.h"
#include "chunkstore/read/stats.h"
#include "chunkstore/read/verify.h"
#include "chunkstore/store/closure.h"
#include "chunkstore/store/file_store.h"
#include "chunkstore/store/gc.h"
#include "chunkstore/store/lease.h"
#include "tests/support/crash_file_ops.h"
#include "tests/support/fault_store.h"
#include "tests/support/test_layer.h"

namespace varve::chunkstore {
namespace {

class UpkeepTest : public ::testing::Test {
 protected:
  // In memory: these tests sync thousands of files.
  TempDir dir_ = TempDir::create("varve-upkeep-", "/dev/shm").value();
  std::shared_ptr<Store> disk_ = open_store(dir_.path() + "/store", true).value();
  std::shared_ptr<test::FaultStore> store_ = std::make_shared<test::FaultStore>(disk_);
  test::TestLayer kept_ = test::put_layer(*disk_, test::make_chunks(30, 1, 5000), 12);
  Digest image_ = test::put_image(*disk_, {kept_.id}, "kept:1");

  std::set<std::string> keys(const std::string& prefix = "") {
    std::set<std::string> found;
    test::must(disk_->list(
        prefix,
        [&](const std::string& key, const ObjectInfo&) -> Status {
          found.insert(key);
          return {};
        },
        kNoDeadline));
    return found;
  }
  GcResult collect(int64_t grace_s = 1000) {
    GcOptions options;
    options.grace_s = grace_s;
    const auto result = collect_garbage(*store_, options);
    EXPECT_TRUE(result) << result.error().to_string();
    return result.value_or(GcResult{});
  }
  std::vector<VerifyFault> faults() {
    const auto result = verify_store(*store_, VerifyOptions{});
    EXPECT_TRUE(result) << result.error().to_string();
    return result->faults;
  }
  std::string only_fault() {
    const auto found = faults();
    if (found.size() != 1)
      return std::to_string(found.size()) + " faults" +
             (found.empty() ? "" : ": " + found[0].key + found[0].message);
    return found[0].key + ": " + found[0].message;
  }
  std::string path(const std::string& key) { return dir_.path() + "/store/" + key; }
  void flip_byte(const std::string& key, uint64_t at) {
    Bytes bytes = read_file(path(key), 1 << 26).value();
    bytes[at] ^= 1;
    test::must(write_file_atomic(path(key), bytes));
  }
};

TEST_F(UpkeepTest, GarbageIsCondemnedThenDeletedAfterTheGracePeriod) {
  const auto before = keys();
  const auto unused = test::put_layer(*disk_, test::make_chunks(20, 2, 5000));
  test::put_image(*disk_, {unused.id}, "unused:1");
  EXPECT_EQ(collect().condemned_count, 0u);
  test::must(ImageStore(disk_).remove_ref(parse_ref("unused:1").value(), kNoDeadline));
  const GcResult first = collect();
  EXPECT_EQ(first.condemned_count, 5u);  // image, layer, current, placement, pack
  EXPECT_EQ(first.deleted_count, 0u);
  EXPECT_EQ(first.live_count, 1u + 1u + 2u + 3u);
  store_->advance_clock(500);
  EXPECT_EQ(collect().waiting_count, 5u);
  store_->advance_clock(501);
  const GcResult second = collect();
  EXPECT_EQ(second.deleted_count, 5u);
  EXPECT_EQ(second.deleted_bytes, first.condemned_bytes);
  store_->advance_clock(kDeletionWindowS + 1);
  collect();
  EXPECT_EQ(keys(), before);
  EXPECT_EQ(faults().size(), 0u);
}

TEST_F(UpkeepTest, WithoutGraceOneRunDoesBoth) {
  test::put_layer(*disk_, test::make_chunks(20, 2, 5000));
  const GcResult result = collect(0);
  EXPECT_EQ(result.condemned_count, 4u);
  EXPECT_EQ(result.deleted_count, 4u);
  EXPECT_EQ(keys("layers/").size(), 1u);
}

TEST_F(UpkeepTest, WhatWasCondemnedFirstWaitsForWhatNamesIt) {
  // A build that was killed leaves a layer, another one makes an image of it and loses its name.
  const auto layer = test::put_layer(*disk_, test::make_chunks(20, 2, 5000));
  EXPECT_EQ(collect().condemned_count, 4u);
  const Digest image = test::put_image(*disk_, {layer.id}, "unused:1");
  test::must(ImageStore(disk_).remove_ref(parse_ref("unused:1").value(), kNoDeadline));
  store_->advance_clock(1001);
  const GcResult first = collect();
  EXPECT_EQ(first.condemned_count, 1u);
  EXPECT_EQ(first.deleted_count, 0u);
  EXPECT_EQ(first.waiting_count, 4u);
  EXPECT_EQ(collect(0).deleted_count, 0u);
  EXPECT_EQ(faults().size(), 0u) << only_fault();
  EXPECT_TRUE(collect_stats(store_, dir_.path()));
  store_->advance_clock(1001);
  EXPECT_EQ(collect().deleted_count, 5u);
  EXPECT_FALSE(disk_->stat(image_key(image), kNoDeadline));
  // Damaged, it names nothing.
  test::put_layer(*disk_, test::make_chunks(20, 3, 5000));
  EXPECT_EQ(collect().condemned_count, 4u);
  test::must(disk_->replace(image_key(sha256(as_bytes("{}"))), as_bytes("{}"), kNoDeadline));
  store_->advance_clock(1001);
  EXPECT_EQ(collect().deleted_count, 4u);
}

TEST_F(UpkeepTest, ADryRunChangesNothingAndTellsWhatWouldGo) {
  test::put_layer(*disk_, test::make_chunks(20, 2, 5000));
  const auto before = keys();
  GcOptions options;
  options.grace_s = 0;
  options.is_dry_run = true;
  const auto result = collect_garbage(*store_, options).value();
  EXPECT_EQ(result.condemned_count, 4u);
  EXPECT_EQ(result.deleted_count, 4u);
  EXPECT_EQ(keys(), before);
}

TEST_F(UpkeepTest, OnAFullDiskWhatIsDeletedMakesRoomForTheNextTombstones) {
  // Files that the disk still takes: a new tombstone is one, a replaced one exists beside the old.
  int free_count = 1;
  store_->set_before([&](test::FaultStore::Op op, std::string_view key) -> Status {
    if (op == test::FaultStore::Op::kRemove) ++free_count;
    if (op != test::FaultStore::Op::kReplace) return {};
    if (free_count < 1) return fail_errno(ENOSPC, "writing " + std::string(key));
    if (!std::filesystem::exists(path(std::string(key)))) --free_count;
    return {};
  });
  const auto before = keys();
  test::put_layer(*disk_, test::make_chunks(20, 2, 5000));
  test::put_layer(*disk_, test::make_chunks(20, 3, 5000));
  EXPECT_EQ(collect(0).deleted_count, 8u);
  EXPECT_EQ(keys("layers/").size(), 1u);

  // With a grace period: what is due goes, although not even one tombstone can be written first.
  test::put_layer(*disk_, test::make_chunks(20, 4, 5000));
  free_count = 100;
  EXPECT_EQ(collect(1000).condemned_count, 4u);
  test::put_layer(*disk_, test::make_chunks(20, 5, 5000));
  store_->advance_clock(1001);
  free_count = 0;
  const GcResult result = collect(1000);
  EXPECT_EQ(result.deleted_count, 4u);
  EXPECT_EQ(result.condemned_count, 4u);

  // Where nothing can go, it says why.
  test::put_layer(*disk_, test::make_chunks(20, 6, 5000));
  store_->set_before([](test::FaultStore::Op op, std::string_view key) -> Status {
    return op == test::FaultStore::Op::kReplace
               ? Status(fail_errno(ENOSPC, "writing " + std::string(key)))
               : Status();
  });
  const auto full = collect_garbage(*store_, {});
  ASSERT_FALSE(full);
  EXPECT_EQ(full.error().code(), ErrorCode::kNoSpace);
}

TEST_F(UpkeepTest, WhatALeaseListsLivesWithAllThatItNames) {
  const auto leased = test::put_layer(*disk_, test::make_chunks(20, 2, 5000));
  auto lease = Lease::take(disk_).value();
  const std::string key = layer_key(leased.id);
  ASSERT_TRUE(lease->add({&key, 1}));
  EXPECT_EQ(collect(0).condemned_count, 0u);
  ASSERT_TRUE(lease->release());
  EXPECT_EQ(collect(0).deleted_count, 4u);
}

TEST_F(UpkeepTest, TheBaseOfABuildIsHeldFromItsStart) {
  const auto base = test::put_layer(*disk_, test::make_chunks(20, 2, 5000));
  auto lease = Lease::take(disk_).value();
  ASSERT_TRUE(hold_layers(*disk_, *lease, {&base.id, 1}));
  EXPECT_EQ(collect(0).condemned_count, 0u);
  ASSERT_TRUE(lease->release());
  EXPECT_EQ(collect(0).deleted_count, 4u);
  lease = Lease::take(disk_).value();
  EXPECT_EQ(hold_layers(*disk_, *lease, {&base.id, 1}).error().code(), ErrorCode::kNotFound);
}

TEST_F(UpkeepTest, AnExpiredLeaseProtectsNothingAndIsRemoved) {
  const auto leased = test::put_layer(*disk_, test::make_chunks(20, 2, 5000));
  const int64_t now = disk_->now_s(kNoDeadline).value();
  const std::string lease = lease_key(random_uuid());
  test::must(disk_->replace(lease, encode_lease({now + 5, {layer_key(leased.id)}}), kNoDeadline));
  EXPECT_EQ(collect(0).condemned_count, 0u);
  store_->advance_clock(5 + kDeletionWindowS + 1);
  const GcResult result = collect(0);
  EXPECT_EQ(result.deleted_count, 4u);
  EXPECT_EQ(result.expired_lease_count, 1u);
  EXPECT_EQ(keys("leases/"), std::set<std::string>{});
}

TEST_F(UpkeepTest, ACondemnedObjectThatIsNeededAgainLives) {
  const auto layer = test::put_layer(*disk_, test::make_chunks(20, 2, 5000));
  EXPECT_EQ(collect().condemned_count, 4u);
  test::put_image(*disk_, {layer.id}, "again:1");
  store_->advance_clock(2000);
  const GcResult result = collect();
  EXPECT_EQ(result.revived_count, 4u);
  EXPECT_EQ(result.deleted_count, 0u);
  // While a collector that did not see the ref could still act, builders are told so.
  const int64_t now = store_->now_s(kNoDeadline).value();
  EXPECT_EQ(read_sentence(*store_, layer_key(layer.id), now).value(), Sentence::kUrgent);
  EXPECT_EQ(read_sentence(*store_, layer_key(layer.id), now + kDeletionWindowS + 1).value(),
            Sentence::kNone);
  store_->advance_clock(kDeletionWindowS + 1);
  collect();
  EXPECT_EQ(keys("tombstones/"), std::set<std::string>{});
  EXPECT_EQ(faults().size(), 0u);
}

TEST_F(UpkeepTest, SupersededPlacementsAreGarbageWithTheirPacks) {
  const std::set<std::string> old_packs = keys("packs/");
  test::put_placement(*disk_, kept_, 5);
  const GcResult result = collect(0);
  EXPECT_EQ(result.deleted_count, 1u + old_packs.size());
  EXPECT_EQ(faults().size(), 0u);
}

TEST_F(UpkeepTest, NothingIsDeletedWhenItCannotBeToldWhatIsNeeded) {
  test::put_layer(*disk_, test::make_chunks(20, 2, 5000));
  const auto before = keys();
  const std::string image = image_key(image_);
  const Bytes good = disk_->get(image, 1 << 20, kNoDeadline).value();
  for (const auto& [key, text] : std::vector<std::pair<std::string, std::string>>{
           {image, "{}"},
           {"refs/kept:1", "nonsense"},
           {layer_key(kept_.id), std::string(100, 'x')},
           {current_placement_key(kept_.id), "x"},
           {"leases/" + random_uuid(), "{}"},
           {"tombstones/" + image, "x"}}) {
    const auto old = disk_->get(key, 1 << 20, kNoDeadline);
    test::must(disk_->replace(key, as_bytes(text), kNoDeadline));
    GcOptions options;
    options.grace_s = 0;
    const auto result = collect_garbage(*store_, options);
    ASSERT_FALSE(result) << key;
    EXPECT_NE(result.error().to_string().find(key), std::string::npos)
        << result.error().to_string();
    if (old) {
      test::must(disk_->replace(key, *old, kNoDeadline));
    } else {
      test::must(disk_->remove(key, kNoDeadline));
    }
  }
  EXPECT_EQ(keys(), before);
}

TEST_F(UpkeepTest, AnObjectThatIsNoRegularFileIsAFaultAndNotPassedOver) {
  const std::string refs = dir_.path() + "/store/refs/";
  std::filesystem::rename(refs + "kept:1", refs + "real");
  std::filesystem::create_symlink("real", refs + "kept:1");
  std::filesystem::rename(refs + "real", dir_.path() + "/real");
  GcOptions options;
  options.grace_s = 0;
  const auto collected = collect_garbage(*store_, options);
  ASSERT_FALSE(collected) << "the image of a ref that cannot be read was deleted";
  EXPECT_NE(collected.error().to_string().find("refs/kept:1"), std::string::npos);
  const auto found = faults();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].key, "refs/kept:1");
  EXPECT_NE(found[0].message.find("not a regular file"), std::string::npos) << found[0].message;
}

TEST_F(UpkeepTest, WhatIsMissingIsReportedAndTheRestIsCollected) {
  test::put_layer(*disk_, test::make_chunks(20, 2, 5000));
  test::must(disk_->remove(layer_key(kept_.id), kNoDeadline));
  GcOptions options;
  options.grace_s = 1000;
  const auto result = collect_garbage(*store_, options).value();
  EXPECT_EQ(result.missing, std::vector<std::string>{layer_key(kept_.id)});
}

TEST_F(UpkeepTest, AStoreTooSlowToReReadRootsInTimeDeletesNothing) {
  test::put_layer(*disk_, test::make_chunks(20, 2, 5000));
  GcOptions options;
  options.grace_s = 0;
  double now_s = 0;
  options.monotonic_s = [&] { return now_s += 100; };
  EXPECT_EQ(collect_garbage(*store_, options).error().code(), ErrorCode::kUnavailable);
  EXPECT_EQ(keys("layers/").size(), 2u);
  // A little too slow for all at once: roots are read again in between.
  options.monotonic_s = [&] { return now_s += kDeletionWindowS / 5.0; };
  EXPECT_EQ(collect_garbage(*store_, options).value().deleted_count, 4u);
}

TEST_F(UpkeepTest, OldTemporaryFilesGo) {
  test::must(write_file_atomic(path("tmp/old"), as_bytes("x")));
  const timespec times[2] = {{1000, 0}, {1000, 0}};
  ASSERT_EQ(::utimensat(AT_FDCWD, path("tmp/old").c_str(), times, 0), 0);
  EXPECT_EQ(collect().temporary_count, 1u);
}

TEST_F(UpkeepTest, ACollectionCutBeforeAnyStepHarmsNothingAndTheNextOneGoesOn) {
  uint64_t step = 1;
  for (bool is_cut = true; is_cut; ++step) {
    test::must(remove_tree(dir_.path() + "/store"));
    disk_ = open_store(dir_.path() + "/store", true).value();
    store_ = std::make_shared<test::FaultStore>(disk_);
    const auto kept = test::put_layer(*disk_, test::make_chunks(4, 1, 500), 2);
    test::put_image(*disk_, {kept.id}, "kept:1");
    const auto before = keys();
    test::put_layer(*disk_, test::make_chunks(4, 2, 500));
    const UniqueFd root = open_file(dir_.path() + "/store", O_RDONLY | O_DIRECTORY).value();
    test::CrashFileOps ops(root.get(), step);
    GcOptions options;
    options.grace_s = 0;
    {
      const auto crashing = open_file_store(dir_.path() + "/store", false, ops).value();
      const bool is_whole = collect_garbage(*crashing, options).has_value();
      is_cut = ops.crashed();
      EXPECT_EQ(is_whole, !is_cut) << "step " << step;
    }
    ops.lose_unsynced();
    EXPECT_EQ(faults().size(), 0u) << "step " << step << " " << only_fault();
    collect(0);
    store_->advance_clock(kDeletionWindowS + 1);
    collect(0);
    store_->advance_clock(kDeletionWindowS + 1);
    collect(0);
    EXPECT_EQ(keys(), before) << "step " << step;
  }
  EXPECT_GT(step, 20u);
}

TEST_F(UpkeepTest, AGoodStoreHasNoFaultAndCountsAreRight) {
  uint64_t progress = 0;
  VerifyOptions options;
  options.on_progress = [&](uint64_t done_bytes, uint64_t all_bytes) {
    progress = done_bytes;
    EXPECT_LE(done_bytes, all_bytes);
  };
  const auto result = verify_store(*store_, options).value();
  EXPECT_EQ(result.faults.size(), 0u) << only_fault();
  EXPECT_EQ(result.pack_count, 3u);
  EXPECT_EQ(result.chunk_count, 30u);
  EXPECT_EQ(result.layer_count, 1u);
  EXPECT_EQ(result.placement_count, 1u);
  EXPECT_EQ(result.image_count, 1u);
  EXPECT_EQ(result.ref_count, 1u);
  uint64_t pack_bytes = 0;
  for (const std::string& key : keys("packs/")) pack_bytes += disk_->stat(key, kNoDeadline)->size;
  EXPECT_EQ(progress, pack_bytes);
}

TEST_F(UpkeepTest, EveryFlippedByteOfEveryObjectIsFound) {
  test::must(remove_tree(dir_.path() + "/store"));
  disk_ = open_store(dir_.path() + "/store", true).value();
  store_ = std::make_shared<test::FaultStore>(disk_);
  const auto layer = test::put_layer(*disk_, test::make_chunks(3, 1, 300), 2);
  test::put_image(*disk_, {layer.id}, "a:1");
  ASSERT_EQ(faults().size(), 0u) << only_fault();
  for (const std::string& key : keys()) {
    if (key == kStoreMarkerKey) continue;
    const uint64_t size = disk_->stat(key, kNoDeadline)->size;
    for (uint64_t at = 0; at < size; ++at) {
      store_->set_after_read(
          [&](std::string_view read_key, uint64_t offset, MutableByteView bytes) {
            if (read_key == key && at >= offset && at - offset < bytes.size())
              bytes[at - offset] ^= 1;
          });
      EXPECT_GE(faults().size(), 1u) << key << " byte " << at;
    }
  }
}

TEST_F(UpkeepTest, FaultsNameTheObjectAndThePlaceAndDoNotStopTheCheck) {
  const std::string pack = pack_key(kept_.packs[1]);
  flip_byte(pack, 3);
  EXPECT_TRUE(only_fault().starts_with(pack + ": chunk " + sha256(kept_.chunks[12]).hex() +
                                       " at offset 0: "))
      << only_fault();
  flip_byte(pack, 3);
  test::must(disk_->remove(pack, kNoDeadline));
  EXPECT_NE(only_fault().find("12 entries are wrong; the first: entry 12"), std::string::npos)
      << only_fault();
  test::must(disk_->remove(image_key(image_), kNoDeadline));
  test::must(disk_->put_if_absent("packs/zz/junk", as_bytes("x"), kNoDeadline).map([](bool) {}));
  const auto found = faults();
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0].key, "packs/zz/junk");
  EXPECT_TRUE(found[1].key.starts_with("placements/"));
  EXPECT_EQ(found[2].key, "refs/kept:1");
}

TEST_F(UpkeepTest, WhatIsPublishedAndDeletedMeanwhileIsNoFault) {
  const auto other = test::put_layer(*disk_, test::make_chunks(20, 2, 5000), 5);
  const Digest image = test::put_image(*disk_, {other.id}, "other:1");
  const std::string lease = "leases/" + random_uuid();
  test::must(disk_->replace(lease, encode_lease({int64_t{1} << 40, {}}), kNoDeadline));
  // `change` happens after the listing, before the first look at an object whose key begins so.
  const auto faults_with = [&](std::string_view begin, const std::function<void()>& change) {
    bool is_done = false;
    store_->set_before([&](test::FaultStore::Op op, std::string_view key) -> Status {
      if (op == test::FaultStore::Op::kList || is_done || !key.starts_with(begin)) return {};
      is_done = true;
      change();
      return {};
    });
    VerifyOptions options;
    options.thread_count = 1;
    std::string text;
    const auto result = verify_store(*store_, options).value();
    for (const VerifyFault& fault : result.faults) text += fault.key + ": " + fault.message + "\n";
    store_->set_before(nullptr);
    EXPECT_TRUE(is_done);
    return text;
  };
  uint32_t seed = 10;
  for (const char* begin : {"leases/", "packs/", "layers/", "placements/", "images/", "refs/"}) {
    SCOPED_TRACE(begin);
    EXPECT_EQ(faults_with(begin,
                          [&] {
                            const auto fresh =
                                test::put_layer(*disk_, test::make_chunks(9, ++seed, 5000), 3);
                            test::put_image(*disk_, {fresh.id}, "kept:1");
                          }),
              "");
    // In the order of a collection.
    std::vector<std::string> doomed = {"refs/other:1",
                                       lease,
                                       image_key(image),
                                       layer_key(other.id),
                                       current_placement_key(other.id),
                                       placement_key(other.id, other.placement)};
    for (const Digest& pack : other.packs) doomed.push_back(pack_key(pack));
    std::map<std::string, Bytes> gone;
    EXPECT_EQ(faults_with(begin,
                          [&] {
                            for (const std::string& key : doomed) {
                              gone[key] = disk_->get(key, 1 << 26, kNoDeadline).value();
                              test::must(disk_->remove(key, kNoDeadline));
                            }
                          }),
              "");
    for (const auto& [key, bytes] : gone) test::must(disk_->replace(key, bytes, kNoDeadline));
  }
}

TEST_F(UpkeepTest, ObjectsLargerThanMemoryAreFaultsThatAreNotRead) {
  for (const std::string& key : keys()) {
    if (key == kStoreMarkerKey) continue;
    const auto size = std::filesystem::file_size(path(key));
    std::filesystem::resize_file(path(key), uint64_t{1} << 40);
    EXPECT_FALSE(faults().empty()) << key;
    std::filesystem::resize_file(path(key), size);
  }
  EXPECT_TRUE(faults().empty());
}

TEST_F(UpkeepTest, AWholePackUnderAnotherNameIsNotUsed) {
  const std::string wrong = pack_key(kept_.packs[1]);
  const Bytes other = disk_->get(pack_key(kept_.packs[0]), 1 << 26, kNoDeadline).value();
  test::must(disk_->replace(wrong, other, kNoDeadline));
  const auto entries = read_pack_index(*disk_, kept_.packs[1], kNoDeadline);
  ASSERT_FALSE(entries);
  EXPECT_EQ(entries.error().code(), ErrorCode::kCorruption);
  VerifyOptions shallow;
  shallow.is_deep = false;
  const auto found = verify_store(*disk_, shallow).value().faults;
  ASSERT_FALSE(found.empty());
  EXPECT_EQ(found[0].key, wrong);
  EXPECT_NE(found[0].message.find("trailer has the hash " + kept_.packs[0].hex()),
            std::string::npos)
      << found[0].message;
}

TEST_F(UpkeepTest, AShallowCheckReadsNoChunk) {
  flip_byte(pack_key(kept_.packs[0]), 3);
  VerifyOptions shallow;
  shallow.is_deep = false;
  EXPECT_EQ(verify_store(*store_, shallow).value().faults.size(), 0u);
}

TEST_F(UpkeepTest, StatsCountSharedChunksOnce) {
  std::vector<Bytes> chunks = kept_.chunks;
  chunks[3] = Bytes(chunks[3].size(), 7);
  const auto edited = test::put_layer(*disk_, chunks);
  const Digest second = test::put_image(*disk_, {edited.id}, "edited:1");
  const Digest both = test::put_image(*disk_, {kept_.id, edited.id}, "both:1");
  const auto stats = collect_stats(store_, dir_.path()).value();
  EXPECT_EQ(stats.image_count, 3u);
  EXPECT_EQ(stats.pack_count, keys("packs/").size());
  EXPECT_EQ(stats.layer_count, 2u);
  EXPECT_EQ(stats.placement_count, 2u) << "the pointers to them are none";
  EXPECT_EQ(stats.chunk_count, 31u);
  EXPECT_EQ(stats.image_bytes, 4 * kept_.image.size());
  EXPECT_EQ(stats.raw_bytes, kept_.image.size() + chunks[3].size());
  const auto of = [&](const Digest& id) {
    return *std::ranges::find(stats.images, id, &ImageStats::id);
  };
  EXPECT_EQ(of(image_).chunk_count, 30u);
  EXPECT_EQ(of(image_).exclusive_bytes, 0u);
  EXPECT_EQ(of(both).chunk_count, 31u);
  EXPECT_EQ(of(both).refs, std::vector<std::string>{"both:1"});
  EXPECT_EQ(of(both).stored_bytes, stats.stored_bytes);
  uint64_t shared = 0;
  for (const SharedStats& pair : stats.shared) {
    const std::set<Digest> ids = {stats.images[pair.first].id, stats.images[pair.second].id};
    if (ids == std::set<Digest>{image_, second}) shared = pair.shared_bytes;
  }
  EXPECT_GT(shared, 0u);
  EXPECT_LT(shared, of(image_).stored_bytes);
  EXPECT_GT(stats.dedup_ratio(), 3.5);
  EXPECT_GT(stats.compression_ratio(), 1.0);
}

TEST_F(UpkeepTest, StatsReadALayerThatAnImageHasManyTimesOnce) {
  test::must(ImageStore(disk_).remove_ref(parse_ref("kept:1").value(), kNoDeadline));
  test::must(disk_->remove(image_key(image_), kNoDeadline));
  size_t read_count = 0;
  store_->set_before([&](test::FaultStore::Op, std::string_view key) -> Status {
    if (key == layer_key(kept_.id)) ++read_count;
    return {};
  });
  test::put_image(*disk_, {kept_.id}, "once:1");
  ASSERT_TRUE(collect_stats(store_, dir_.path()));
  const size_t once = std::exchange(read_count, 0);
  test::must(ImageStore(disk_).remove_ref(parse_ref("once:1").value(), kNoDeadline));
  for (const std::string& key : keys("images/")) test::must(disk_->remove(key, kNoDeadline));
  test::put_image(*disk_, std::vector<Digest>(100, kept_.id), "often:1");
  const auto stats = collect_stats(store_, dir_.path()).value();
  EXPECT_EQ(read_count, once);
  EXPECT_EQ(stats.image_bytes, 100 * kept_.image.size());
  EXPECT_EQ(stats.raw_bytes, kept_.image.size());
}

TEST_F(UpkeepTest, StatsLeaveOutAnImageThatIsDeletedMeanwhile) {
  const auto other = test::put_layer(*disk_, test::make_chunks(20, 2, 5000));
  const Digest image = test::put_image(*disk_, {kept_.id, other.id}, "other:1");
  const auto collect_without = [&](const std::string& first, const std::string& second) {
    store_->set_before([&](test::FaultStore::Op, std::string_view key) -> Status {
      if (key != first) return {};
      // Only once, and whether or not the other is there.
      (void)disk_->remove(first, kNoDeadline);
      (void)disk_->remove(second, kNoDeadline);
      return {};
    });
    return collect_stats(store_, dir_.path());
  };
  const auto stats = collect_without(layer_key(other.id), image_key(image));
  ASSERT_TRUE(stats) << stats.error().to_string();
  ASSERT_EQ(stats->image_count, 1u);
  EXPECT_EQ(stats->images[0].id, image_);
  EXPECT_EQ(stats->chunk_count, 30u) << "chunks of a part of the other image";
  EXPECT_FALSE(collect_without(layer_key(kept_.id), "images/none")) << "its image is still there";
}

}  // namespace
}  // namespace varve::chunkstore
