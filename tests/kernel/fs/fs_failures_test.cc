#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/time.h>

#include <filesystem>
#include <set>
#include <thread>

#include "base/clock.h"
#include "base/file_io.h"
#include "base/remove_tree.h"
#include "chunkstore/format/keys.h"
#include "chunkstore/read/layer_map.h"
#include "tests/kernel/fs/fs_test.h"

namespace varve::test {
namespace {

class FsFailuresTest : public FsStoreTest {
 protected:
  // Noise in two files, many packs; attached as `attached_`.
  void start_with_noise() {
    const std::string source = varvefs_.scratch() + "/source";
    must(make_directories(source + "/directory"));
    must(write_file_atomic(source + "/a", make_noise(4 << 20, 1)));
    must(write_file_atomic(source + "/b", make_noise(4 << 20, 2)));
    for (int i = 0; i < 100; ++i) {
      must(write_file_atomic(source + "/directory/" + std::to_string(i), as_bytes("text")));
    }
    layer_ = put_directory(varvefs_.store(), source, 4);
    put_image(varvefs_.store(), {layer_.id}, "app:v1");
    varvefs_.start();
    client_.emplace(varvefs_.connect());
    attached_ = varvefs_.attach(*client_, "app:v1");
    image_ = VarvefsProcess::image_of(attached_);
    tree_ = VarvefsProcess::tree_of(attached_);
    map_ = chunkstore::LayerMap::open(
               std::shared_ptr<chunkstore::Store>(&varvefs_.store(), [](auto*) {}), layer_.id,
               varvefs_.scratch(), kNoDeadline)
               .value();
  }

  /// A chunk, and a page that lies wholly inside it.
  struct Spot : chunkstore::ChunkLocation {
    uint64_t page = 0;
  };
  // The first chunk with such a page at or after image offset `from`.
  Spot spot_from(uint64_t from) {
    uint64_t offset = std::max(from, map_->header().metadata_size);
    for (;;) {
      const auto location = map_->locate(offset, kNoDeadline).value();
      const uint64_t page = align_up(location.image_offset, kPage);
      const uint64_t end = location.image_offset + location.raw_size;
      if (page >= from && page + kPage <= end) return {location, page};
      offset = end;
    }
  }
  ::testing::AssertionResult page_is_right(uint64_t offset) {
    Bytes bytes;
    const int error = direct_read_errno(image_, offset, kPage, &bytes);
    if (error != 0) {
      return ::testing::AssertionFailure() << "errno " << error << "\n" << varvefs_.log();
    }
    const auto expected = layer_.image.begin() + static_cast<ptrdiff_t>(offset);
    if (bytes.size() == kPage && std::equal(bytes.begin(), bytes.end(), expected)) {
      return ::testing::AssertionSuccess();
    }
    return ::testing::AssertionFailure() << bytes.size() << " bytes, which are wrong";
  }
  std::string pack_path(const Digest& pack) {
    return varvefs_.store_directory() + "/" + chunkstore::pack_key(pack);
  }
  std::string other_directory() { return varvefs_.scratch() + "/other"; }
  // The same layer in another store, in other packs.
  void put_in_other_store() {
    const auto store = chunkstore::open_store(other_directory(), true).value();
    const TestLayer again = put_directory(*store, varvefs_.scratch() + "/source", 7);
    ASSERT_EQ(again.id, layer_.id);
    put_image(*store, {again.id}, "app:v1");
  }
  ControlClient::Answer attach_from(ControlClient& client, const std::string& directory,
                                    const std::string& image = "app:v1") {
    return client.post("/v1/attach", {{"store", "file://" + directory}, {"image", image}}).value();
  }

  TestLayer layer_;
  std::optional<ControlClient> client_;
  ControlClient::Answer attached_;
  std::string image_;
  std::string tree_;
  std::unique_ptr<chunkstore::LayerMap> map_;
};

TEST_P(FsFailuresTest, KilledReadersHarmNobody) {
  start_with_noise();
  varvefs_.switches().is_slow = true;
  for (int round = 0; round < 10; ++round) {
    std::vector<std::unique_ptr<Child>> readers;
    for (int i = 0; i < 8; ++i) {
      readers.push_back(std::make_unique<Child>([&, i] {
        for (uint64_t page = static_cast<uint64_t>(i);; page += 7) {
          direct_read_errno(image_, page * kPage % layer_.image.size());
        }
        return 0;
      }));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    // Each destructor kills and waits.
  }
  varvefs_.switches().is_slow = false;
  EXPECT_TRUE(page_is_right(spot_from(0).page));
  EXPECT_EQ(client_->get("/v1/status").value().body.at("pending_reads").to_number<int>(), 0);
}

TEST_P(FsFailuresTest, AHungStoreGivesEioByTheDeadlineAndNothingElseWaits) {
  varvefs_.options().read_deadline_ms = 3000;
  start_with_noise();
  const uint64_t offset = spot_from(0).page;
  varvefs_.switches().hangs = true;
  // Very many more readers than a queue has entries at first.
  constexpr uint64_t kReaderCount = 400;
  std::vector<std::unique_ptr<Child>> readers;
  for (uint64_t i = 0; i < kReaderCount; ++i) {
    readers.push_back(std::make_unique<Child>(
        [&, i] { return direct_read_errno(image_, offset + i * 3 * kPage); }));
  }
  while (varvefs_.switches().hanging_reads == 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  // Names nobody asked for yet.
  size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(tree_ + "/directory")) {
    struct stat st;
    EXPECT_EQ(stat(entry.path().c_str(), &st), 0);
    ++count;
  }
  EXPECT_EQ(count, 100u);
  EXPECT_GT(client_->get("/v1/status").value().body.at("pending_reads").to_number<int>(), 0);
  for (auto& reader : readers) EXPECT_EQ(reader->wait(), EIO);
  varvefs_.switches().hangs = false;
  EXPECT_TRUE(page_is_right(offset));
}

TEST_P(FsFailuresTest, ACrowdOfReadersOfASlowStoreGetsItsDataAndLeavesItsMemory) {
  start_with_noise();
  varvefs_.switches().hangs = true;
  constexpr uint64_t kReaderCount = 300;
  constexpr uint64_t kReadBytes = 1 << 20;
  constexpr uint64_t kResidentKbMax = 220 << 10;
  std::vector<std::unique_ptr<Child>> readers;
  for (uint64_t i = 0; i < kReaderCount; ++i) {
    readers.push_back(std::make_unique<Child>([&, i] {
      Bytes bytes;
      const uint64_t offset = spot_from(0).page + i * 5 * kPage;
      if (direct_read_errno(image_, offset, kReadBytes, &bytes) != 0) return 1;
      const auto expected = layer_.image.begin() + static_cast<ptrdiff_t>(offset);
      return std::equal(bytes.begin(), bytes.end(), expected) ? 0 : 2;
    }));
  }
  // Most of them: entries that were added for a burst take up what waits in the kernel only with
  // the next answer.
  while (varvefs_.switches().hanging_reads == 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  varvefs_.switches().hangs = false;
  for (auto& reader : readers) EXPECT_EQ(reader->wait(), 0) << varvefs_.log();
  // Its cache, and the payloads of at most 64 entries a queue.
  // Given back after the last reader had its answer, so perhaps after its end.
  if (!kIsSanitized) {
    const Deadline deadline = deadline_after_ms(20'000);
    while (resident_kb(varvefs_.pid()) >= kResidentKbMax && MonotonicClock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    EXPECT_LT(resident_kb(varvefs_.pid()), kResidentKbMax);
  }
}

TEST_P(FsFailuresTest, AReaderOfAHungStoreCanBeKilledAtOnce) {
  varvefs_.options().read_deadline_ms = 3'000'000;
  start_with_noise();
  varvefs_.switches().hangs = true;
  const uint64_t offset = spot_from(0).page;
  Child direct([&] { return direct_read_errno(image_, offset); });
  Child buffered([&] {
    const auto bytes = read_file(tree_ + "/b", 1 << 30);
    return bytes ? 0 : 1;
  });
  while (varvefs_.switches().hanging_reads < 2) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  direct.kill();
  buffered.kill();
  // Without an answer to the INTERRUPT this waits for ever: the deadline is far away.
  EXPECT_EQ(direct.wait(), 128 + SIGKILL);
  EXPECT_EQ(buffered.wait(), 128 + SIGKILL);
  EXPECT_EQ(client_->get("/v1/status").value().status, 200);
  varvefs_.switches().hangs = false;
  EXPECT_TRUE(page_is_right(offset));
}

TEST_P(FsFailuresTest, ASignalThatDoesNotKillDoesNotFailARead) {
  start_with_noise();
  varvefs_.switches().is_slow = true;
  Child reader([&] {
    struct sigaction action {};
    action.sa_handler = [](int) {};
    sigaction(SIGALRM, &action, nullptr);
    const itimerval every_ms = {{0, 1000}, {0, 1000}};
    setitimer(ITIMER_REAL, &every_ms, nullptr);
    for (uint64_t offset = spot_from(0).page; offset + kPage < layer_.image.size();
         offset += 256 << 10) {
      if (!page_is_right(offset)) return 1;
    }
    return 0;
  });
  EXPECT_EQ(reader.wait(), 0);
}

TEST_P(FsFailuresTest, AMissingPackFailsItsChunksOnlyAndIsBackWhenItIsBack) {
  start_with_noise();
  const auto lost = spot_from(1 << 20);
  auto other = spot_from(0);
  for (uint64_t from = 0; other.pack == lost.pack; from += 1 << 20) other = spot_from(from);
  std::filesystem::rename(pack_path(lost.pack), varvefs_.scratch() + "/aside");
  EXPECT_EQ(direct_read_errno(image_, lost.page), EIO);
  EXPECT_TRUE(page_is_right(other.page));
  const std::string log = varvefs_.log();
  EXPECT_NE(log.find(lost.id.short_hex()), std::string::npos) << log;
  EXPECT_NE(log.find(lost.pack.hex()), std::string::npos) << log;
  std::filesystem::rename(varvefs_.scratch() + "/aside", pack_path(lost.pack));
  EXPECT_TRUE(page_is_right(lost.page));
}

TEST_P(FsFailuresTest, ATruncatedPackFailsWhatItLacksOnly) {
  start_with_noise();
  const auto first = spot_from(1 << 20);
  // The last chunk of the same pack: four chunks have room for it in a file of 4 MiB.
  auto last = first;
  for (auto next = first; next.pack == first.pack;
       next = spot_from(next.image_offset + next.raw_size)) {
    last = next;
  }
  ASSERT_NE(last.index, first.index);
  std::filesystem::copy_file(pack_path(first.pack), varvefs_.scratch() + "/aside");
  std::filesystem::resize_file(pack_path(first.pack), last.pack_offset + 1);
  EXPECT_EQ(direct_read_errno(image_, last.page), EIO);
  EXPECT_TRUE(page_is_right(first.page));
  // One read over both: the whole fails, and the good chunk is none the worse.
  EXPECT_EQ(direct_read_errno(image_, first.page, last.page + kPage - first.page), EIO);
  EXPECT_TRUE(page_is_right(first.page));
  std::filesystem::rename(varvefs_.scratch() + "/aside", pack_path(first.pack));
  EXPECT_TRUE(page_is_right(last.page));
}

TEST_P(FsFailuresTest, AWrongByteInAPackIsEioAndNeverData) {
  start_with_noise();
  const auto bad = spot_from(1 << 20);
  const UniqueFd pack = open_file(pack_path(bad.pack), O_RDWR).value();
  uint8_t byte;
  must(pread_exact(pack.get(), bad.pack_offset + bad.stored_size / 2, {&byte, 1}));
  byte ^= 1;
  must(pwrite_all(pack.get(), bad.pack_offset + bad.stored_size / 2, {&byte, 1}));
  EXPECT_EQ(direct_read_errno(image_, bad.page), EIO);
  byte ^= 1;
  must(pwrite_all(pack.get(), bad.pack_offset + bad.stored_size / 2, {&byte, 1}));
  EXPECT_TRUE(page_is_right(bad.page));
}

TEST_P(FsFailuresTest, AReadOfSeveralChunksFailsWhenOneIsWrongAndSucceedsWhenItIsRepaired) {
  start_with_noise();
  constexpr uint64_t kSize = 1 << 20;
  const uint64_t start = align_up(map_->header().metadata_size, kPage);
  const auto bad = map_->locate(start + kSize / 2, kNoDeadline).value();
  const UniqueFd pack = open_file(pack_path(bad.pack), O_RDWR).value();
  uint8_t byte;
  must(pread_exact(pack.get(), bad.pack_offset + 100, {&byte, 1}));
  byte ^= 1;
  must(pwrite_all(pack.get(), bad.pack_offset + 100, {&byte, 1}));
  EXPECT_EQ(direct_read_errno(image_, start, kSize), EIO);
  byte ^= 1;
  must(pwrite_all(pack.get(), bad.pack_offset + 100, {&byte, 1}));
  Bytes bytes;
  ASSERT_EQ(direct_read_errno(image_, start, kSize, &bytes), 0) << varvefs_.log();
  const auto expected = layer_.image.begin() + static_cast<ptrdiff_t>(start);
  EXPECT_EQ(bytes.size(), kSize);
  EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), expected));
}

TEST_P(FsFailuresTest, ARemovedStoreLeavesMetadataAndWhatIsCached) {
  start_with_noise();
  // Of a chunk that one page does not cover: such a read leaves it in the cache.
  const uint64_t cached = spot_from(1 << 20).page;
  const uint64_t absent = spot_from(3 << 20).page;
  ASSERT_TRUE(page_is_right(cached));
  must(remove_tree(varvefs_.store_directory()));
  EXPECT_TRUE(page_is_right(cached));
  EXPECT_EQ(direct_read_errno(image_, absent), EIO);
  size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(tree_ + "/directory")) {
    struct stat st;
    EXPECT_EQ(stat(entry.path().c_str(), &st), 0);
    ++count;
  }
  EXPECT_EQ(count, 100u);
  EXPECT_TRUE(page_is_right(cached));
}

TEST_P(FsFailuresTest, ALayerIsReadFromTheStoreThatAttachedItLast) {
  start_with_noise();
  const uint64_t pages[] = {spot_from(1 << 20).page, spot_from(3 << 20).page,
                            spot_from(7 << 20).page};
  put_in_other_store();
  ControlClient client = varvefs_.connect();
  const auto again = attach_from(client, other_directory());
  ASSERT_EQ(again.status, 200);
  EXPECT_EQ(VarvefsProcess::image_of(again), image_);
  must(remove_tree(varvefs_.store_directory()));
  for (const uint64_t page : pages) EXPECT_TRUE(page_is_right(page));
  EXPECT_EQ(attach_from(client, varvefs_.store_directory()).status, 404);
  EXPECT_TRUE(page_is_right(spot_from(5 << 20).page));
}

TEST_P(FsFailuresTest, AStoreThatAttachedALayerLaterAndFailsHarmsNoReaderOfTheFirst) {
  start_with_noise();
  const uint64_t pages[] = {spot_from(1 << 20).page, spot_from(3 << 20).page,
                            spot_from(7 << 20).page};
  put_in_other_store();
  ControlClient client = varvefs_.connect();
  ASSERT_EQ(attach_from(client, other_directory()).status, 200);
  // Wrong bytes, then no bytes, then no map.
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(other_directory() + "/packs")) {
    if (!entry.is_regular_file()) continue;
    const uint64_t size = entry.file_size();
    std::filesystem::resize_file(entry.path(), 0);
    std::filesystem::resize_file(entry.path(), size);
  }
  EXPECT_TRUE(page_is_right(pages[0]));
  ASSERT_EQ(attach_from(client, other_directory()).status, 200);
  std::filesystem::remove_all(other_directory() + "/packs");
  EXPECT_TRUE(page_is_right(pages[1]));
  ASSERT_EQ(attach_from(client, other_directory()).status, 200);
  must(remove_tree(other_directory()));
  EXPECT_TRUE(page_is_right(pages[2]));
  Bytes bytes;
  ASSERT_EQ(direct_read_errno(image_, 0, 4 << 20, &bytes), 0) << varvefs_.log();
  EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), layer_.image.begin()));
  // With both gone it is an error as ever.
  must(remove_tree(varvefs_.store_directory()));
  EXPECT_EQ(direct_read_errno(image_, spot_from(5 << 20).page), EIO);
}

TEST_P(FsFailuresTest, AStoreThatHangsIsSetAsideForAnotherOne) {
  // Each read would end with EIO by its deadline if it waited for the one alone.
  varvefs_.options().read_deadline_ms = 4000;
  start_with_noise();
  put_in_other_store();
  ControlClient client = varvefs_.connect();
  ASSERT_EQ(attach_from(client, other_directory()).status, 200);
  varvefs_.switches().only_other = true;
  varvefs_.switches().hangs = true;
  const uint64_t page = spot_from(1 << 20).page;
  std::vector<std::unique_ptr<Child>> readers;
  for (uint64_t i = 0; i < 20; ++i) {
    // Of one chunk and of several.
    readers.push_back(std::make_unique<Child>(
        [&, i] { return page_is_right(page + (i % 2 == 0 ? 0 : i * 16 * kPage)) ? 0 : 1; }));
  }
  for (auto& reader : readers) EXPECT_EQ(reader->wait(), 0) << varvefs_.log();
  EXPECT_GT(varvefs_.switches().hanging_reads, 0u);
  // Those who come later do not even try it.
  const uint64_t tried = varvefs_.switches().pack_reads;
  Bytes bytes;
  ASSERT_EQ(direct_read_errno(image_, 4 << 20, 4 << 20, &bytes), 0) << varvefs_.log();
  EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), layer_.image.begin() + (4 << 20)));
  EXPECT_EQ(varvefs_.switches().pack_reads, tried);
}

TEST_P(FsFailuresTest, ReadersGoOnWhileALayerIsAttachedFromTwoStoresByTurns) {
  start_with_noise();
  put_in_other_store();
  Child reader([&] {
    for (uint64_t page = 0; page + kPage <= layer_.image.size(); page += 5 * kPage) {
      if (!page_is_right(page)) return 1;
    }
    return 0;
  });
  std::vector<std::thread> threads;
  for (const std::string& directory : {varvefs_.store_directory(), other_directory()}) {
    threads.emplace_back([&, directory] {
      while (!reader.has_ended()) {
        ControlClient client = varvefs_.connect();
        EXPECT_EQ(attach_from(client, directory).status, 200);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(reader.wait(), 0);
}

TEST_P(FsFailuresTest, AStoreMadeAnewAtItsPathIsSeen) {
  start_with_noise();
  const std::string directory = varvefs_.store_directory();
  const uint64_t page = spot_from(1 << 20).page;
  std::filesystem::rename(directory, varvefs_.scratch() + "/aside");
  ControlClient client = varvefs_.connect();
  EXPECT_EQ(attach_from(client, directory).status, 404);
  const auto store = chunkstore::open_store(directory, true).value();
  const TestLayer again = put_directory(*store, varvefs_.scratch() + "/source/directory");
  put_image(*store, {again.id}, "app:v2");
  EXPECT_EQ(attach_from(client, directory).status, 404);
  const auto answer = attach_from(client, directory, "app:v2");
  ASSERT_EQ(answer.status, 200);
  EXPECT_TRUE(read_file(VarvefsProcess::tree_of(answer) + "/1", 100));
  // Who attached from the store before still reads from it.
  EXPECT_TRUE(page_is_right(page));
}

TEST_P(FsFailuresTest, ALayerAttachedFromManyStoresInTurnHoldsNoneOfThem) {
  start_with_noise();
  const std::string tree = varvefs_.scratch() + "/source/directory";
  // More than varvefs has in use at the same time.
  for (int i = 0; i < 70; ++i) {
    const std::string directory = other_directory() + std::to_string(i);
    const auto store = chunkstore::open_store(directory, true).value();
    put_image(*store, {put_directory(*store, tree).id}, "app:v1");
  }
  ControlClient first = varvefs_.connect();
  ASSERT_EQ(attach_from(first, other_directory() + "0").status, 200);
  for (int i = 1; i < 70; ++i) {
    {
      ControlClient client = varvefs_.connect();
      const auto answer = attach_from(client, other_directory() + std::to_string(i));
      ASSERT_EQ(answer.status, 200) << i << varvefs_.log();
      ASSERT_TRUE(read_file(VarvefsProcess::tree_of(answer) + "/1", 100));
    }
    while (first.get("/v1/status").value().body.at("attachments").to_number<int>() != 2) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
}

TEST_P(FsFailuresTest, ChunksThatMovedAreFoundByTheNewPlacement) {
  start_with_noise();
  const auto moved = spot_from(1 << 20);
  const std::vector<Digest> old_packs = layer_.packs;
  put_placement(varvefs_.store(), layer_, 7);
  for (const Digest& pack : old_packs) {
    if (std::find(layer_.packs.begin(), layer_.packs.end(), pack) == layer_.packs.end()) {
      std::filesystem::remove(pack_path(pack));
    }
  }
  EXPECT_TRUE(page_is_right(moved.page));
  EXPECT_TRUE(page_is_right(spot_from(3 << 20).page));
}

TEST_P(FsFailuresTest, ReadersOfOneChunkCauseOneFetch) {
  start_with_noise();
  const auto chunk = spot_from(1 << 20);
  ASSERT_LE(chunk.page + 2 * kPage, chunk.image_offset + chunk.raw_size);
  // The map's pages are local after the first read of a neighbour.
  ASSERT_TRUE(page_is_right(spot_from(2 << 20).page));
  varvefs_.switches().is_slow = true;
  const uint64_t before = varvefs_.switches().pack_reads;
  std::vector<std::unique_ptr<Child>> readers;
  for (uint64_t i = 0; i < 8; ++i) {
    readers.push_back(std::make_unique<Child>(
        [&, i] { return direct_read_errno(image_, chunk.page + i % 2 * kPage); }));
  }
  for (auto& reader : readers) EXPECT_EQ(reader->wait(), 0);
  EXPECT_EQ(varvefs_.switches().pack_reads - before, 1u);
}

TEST_P(FsFailuresTest, SigtermWithEverythingInUseEndsItInBoundedTime) {
  start_with_noise();
  auto mounted = varvefs_.attach(*client_, "app:v1", "default", true);
  const UniqueFd open_image = open_file(image_, O_RDONLY).value();
  const UniqueFd open_tree = open_file(tree_ + "/a", O_RDONLY).value();
  const UniqueFd in_mount = open_file_at(mounted.fds.at(0).get(), "b", O_RDONLY).value();
  varvefs_.switches().hangs = true;
  Child reader([&] { return direct_read_errno(image_, spot_from(0).page); });
  while (varvefs_.switches().hanging_reads == 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  // The test's timeout bounds it; the store hangs all the while.
  EXPECT_EQ(varvefs_.stop(), 0);
  EXPECT_NE(reader.wait(), 0);
  uint8_t byte;
  EXPECT_FALSE(pread_exact(in_mount.get(), 1 << 20, {&byte, 1}));
  EXPECT_FALSE(std::filesystem::exists(varvefs_.mountpoint() + "/default"));
  EXPECT_FALSE(std::filesystem::exists(varvefs_.options().run_directory + "/control.sock"));
}

TEST_P(FsFailuresTest, AKilledDaemonLeavesNothingThatStopsTheNext) {
  start_with_noise();
  varvefs_.attach(*client_, "app:v1", "default", true);
  const UniqueFd open_image = open_file(image_, O_RDONLY).value();
  varvefs_.kill();
  varvefs_.start();
  client_.emplace(varvefs_.connect());
  varvefs_.attach(*client_, "app:v1");
  EXPECT_TRUE(page_is_right(spot_from(0).page));
}

VARVE_FS_TEST_SUITE(FsFailuresTest);

}  // namespace
}  // namespace varve::test
