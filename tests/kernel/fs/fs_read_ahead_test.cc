#include <filesystem>
#include <thread>

#include "chunkstore/format/keys.h"
#include "chunkstore/read/layer_map.h"
#include "tests/kernel/fs/fs_test.h"

namespace varve::test {
namespace {

constexpr uint64_t kReadBytes = 64 << 10;

class FsReadAheadTest : public FsStoreTest {
 protected:
  // One file of noise over many packs; attached, and its chunks known.
  void start_with_noise() {
    const std::string source = varvefs_.scratch() + "/source";
    must(make_directories(source));
    must(write_file_atomic(source + "/noise", make_noise(16 << 20, 1)));
    layer_ = put_directory(varvefs_.store(), source, 4);
    put_image(varvefs_.store(), {layer_.id}, "app:v1");
    varvefs_.start();
    client_.emplace(varvefs_.connect());
    image_ = VarvefsProcess::image_of(varvefs_.attach(*client_, "app:v1"));
    const auto map = chunkstore::LayerMap::open(
                         std::shared_ptr<chunkstore::Store>(&varvefs_.store(), [](auto*) {}),
                         layer_.id, varvefs_.scratch(), kNoDeadline)
                         .value();
    for (uint64_t offset = map->header().metadata_size; offset < layer_.image.size();) {
      chunks_.push_back(map->locate(offset, kNoDeadline).value());
      offset = chunks_.back().image_offset + chunks_.back().raw_size;
    }
    ASSERT_GT(chunks_.size(), 60u);
  }

  // Reads what chunks_[first] … chunks_[last] cover, in order; the errno, or -1 for wrong bytes.
  int read_in_order(size_t first, size_t last) {
    const uint64_t begin = align_up(chunks_[first].image_offset, kPage);
    const uint64_t end = (chunks_[last].image_offset + chunks_[last].raw_size) / kPage * kPage;
    for (uint64_t offset = begin; offset < end; offset += kReadBytes) {
      const uint64_t size = std::min(kReadBytes, end - offset);
      Bytes bytes;
      const int error = direct_read_errno(image_, offset, size, &bytes);
      if (error != 0) return error;
      const auto expected = layer_.image.begin() + static_cast<ptrdiff_t>(offset);
      if (bytes.size() != size || !std::equal(bytes.begin(), bytes.end(), expected)) return -1;
    }
    return 0;
  }
  // A read inside one chunk.
  int read_page_of(size_t number) {
    return direct_read_errno(image_, align_up(chunks_[number].image_offset, kPage));
  }
  uint64_t total(const char* counter) {
    ControlClient client = varvefs_.connect();
    const auto answer = client.get("/v1/stats").value();
    return answer.body.at("total").at(counter).to_number<uint64_t>();
  }
  uint64_t status(const char* field) {
    ControlClient client = varvefs_.connect();
    return client.get("/v1/status").value().body.at(field).to_number<uint64_t>();
  }
  std::string pack_path(const Digest& pack) {
    return varvefs_.store_directory() + "/" + chunkstore::pack_key(pack);
  }
  // The first chunk, from the 30th on, that begins a pack.
  size_t first_of_a_pack() {
    size_t number = 30;
    while (chunks_[number].pack == chunks_[number - 1].pack) ++number;
    return number;
  }
  // Reads everything before chunks_[number], and waits until chunks behind its pack are there, too.
  void read_up_to(size_t number) {
    const uint64_t before = total("fetched_chunks");
    ASSERT_EQ(read_in_order(0, number - 1), 0) << varvefs_.log();
    while (total("fetched_chunks") < before + number + 3) std::this_thread::yield();
  }
  // A process that reads on from chunks_[first] and hangs in the store before long.
  std::unique_ptr<Child> hang_from(size_t first) {
    varvefs_.switches().hangs = true;
    auto reader =
        std::make_unique<Child>([this, first] { return read_in_order(first, chunks_.size() - 1); });
    while (varvefs_.switches().hanging_reads == 0) std::this_thread::yield();
    return reader;
  }

  TestLayer layer_;
  std::optional<ControlClient> client_;
  std::string image_;
  std::vector<chunkstore::ChunkLocation> chunks_;
};

TEST_P(FsReadAheadTest, AReaderInOrderIsAheadOfTheStore) {
  start_with_noise();
  const uint64_t pack_reads = varvefs_.switches().pack_reads;
  ASSERT_EQ(read_in_order(0, chunks_.size() - 1), 0);
  EXPECT_GT(total("ahead_chunks"), chunks_.size() / 2);
  EXPECT_GT(total("ahead_chunks_used"), chunks_.size() / 2);
  EXPECT_EQ(total("ahead_chunks_wasted"), 0u);
  // Neighbours come together.
  EXPECT_LT(varvefs_.switches().pack_reads - pack_reads, chunks_.size());
}

TEST_P(FsReadAheadTest, AMissingPackAheadIsNoErrorForThoseBeforeIt) {
  start_with_noise();
  const size_t lost = first_of_a_pack();
  const std::string path = pack_path(chunks_[lost].pack);
  std::filesystem::rename(path, varvefs_.scratch() + "/aside");
  read_up_to(lost);
  EXPECT_EQ(total("failed_reads"), 0u);
  EXPECT_EQ(varvefs_.log().find(chunks_[lost].pack.hex()), std::string::npos) << varvefs_.log();
  EXPECT_EQ(read_page_of(lost), EIO);
  EXPECT_NE(varvefs_.log().find(chunks_[lost].pack.hex()), std::string::npos) << varvefs_.log();
  std::filesystem::rename(varvefs_.scratch() + "/aside", path);
  EXPECT_EQ(read_in_order(lost, chunks_.size() - 1), 0) << varvefs_.log();
}

TEST_P(FsReadAheadTest, ATruncatedPackAheadLosesOnlyWhatItLacks) {
  start_with_noise();
  const size_t first = first_of_a_pack();
  const std::string path = pack_path(chunks_[first].pack);
  ASSERT_EQ(chunks_[first + 1].pack, chunks_[first].pack);
  std::filesystem::copy_file(path, varvefs_.scratch() + "/aside");
  std::filesystem::resize_file(path, chunks_[first + 1].pack_offset + 1);
  read_up_to(first);
  EXPECT_EQ(total("failed_reads"), 0u);
  EXPECT_EQ(read_in_order(first, first), 0) << varvefs_.log();
  EXPECT_EQ(read_page_of(first + 1), EIO);
  std::filesystem::rename(varvefs_.scratch() + "/aside", path);
  EXPECT_EQ(read_in_order(first, chunks_.size() - 1), 0) << varvefs_.log();
}

TEST_P(FsReadAheadTest, AReadThatWaitsForReadAheadEndsByItsDeadline) {
  varvefs_.options().read_deadline_ms = 400;
  start_with_noise();
  ASSERT_EQ(read_in_order(0, 20), 0);
  auto reader = hang_from(21);
  EXPECT_EQ(reader->wait(), EIO);
  varvefs_.switches().hangs = false;
  EXPECT_EQ(read_in_order(21, chunks_.size() - 1), 0) << varvefs_.log();
}

TEST_P(FsReadAheadTest, ALayerCanBeDetachedWhileItIsReadAhead) {
  varvefs_.options().idle_s = 0;
  varvefs_.options().read_deadline_ms = 3'000'000;
  start_with_noise();
  ASSERT_EQ(read_in_order(0, 20), 0);
  auto reader = hang_from(21);
  reader->kill();
  EXPECT_EQ(reader->wait(), 128 + SIGKILL);
  client_.reset();
  while (status("layers") != 0) std::this_thread::yield();
  varvefs_.switches().hangs = false;
  client_.emplace(varvefs_.connect());
  varvefs_.attach(*client_, "app:v1");
  EXPECT_EQ(read_in_order(21, chunks_.size() - 1), 0) << varvefs_.log();
}

TEST_P(FsReadAheadTest, SigtermEndsItWhileItReadsAhead) {
  start_with_noise();
  ASSERT_EQ(read_in_order(0, 20), 0);
  auto reader = hang_from(21);
  EXPECT_EQ(varvefs_.stop(), 0);
  EXPECT_NE(reader->wait(), 0);
}

TEST_P(FsReadAheadTest, TheCacheStaysInsideItsBound) {
  varvefs_.options().cache_bytes_max = 8 << 20;
  start_with_noise();
  std::vector<std::unique_ptr<Child>> readers;
  const size_t half = chunks_.size() / 2;
  for (const size_t first : {size_t{0}, half}) {
    readers.push_back(
        std::make_unique<Child>([&, first] { return read_in_order(first, first + half - 1); }));
  }
  for (auto& reader : readers) {
    while (!reader->has_ended()) {
      EXPECT_LE(status("cache_bytes"), varvefs_.options().cache_bytes_max);
    }
    EXPECT_EQ(reader->wait(), 0);
  }
  EXPECT_GT(total("ahead_chunks_used"), 0u);
  EXPECT_LE(status("cache_bytes"), varvefs_.options().cache_bytes_max);
}

VARVE_FS_TEST_SUITE(FsReadAheadTest);

}  // namespace
}  // namespace varve::test
