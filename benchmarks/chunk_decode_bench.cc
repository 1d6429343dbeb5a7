// chunk_decode_bench STORE_URL IMAGE [COUNT [ROUNDS]]: how fast all CPUs together decompress and
// verify chunks, which is the least that a reader of a cold random page has to wait for: the bound
// of random reads in mount_bench.py.
//
// COUNT chunks are drawn as a uniformly drawn byte of the image's file data would draw them, and
// their stored bytes are read into memory. In each round as many threads as there are CPUs decode
// all of them, each into buffers of its own, as many together as varvefs does. Prints one JSON
// object; chunk_us is the time per chunk of all CPUs together, the median over rounds.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "chunkstore/format/chunk.h"
#include "chunkstore/read/chunk_reader.h"
#include "chunkstore/read/image_store.h"
#include "fs/fetch/chunk_fetcher.h"

namespace {

using namespace varve;
using namespace varve::chunkstore;

constexpr size_t kTogetherCount = fs::ChunkFetcher::kTogetherCountMax;

struct StoredCopy {
  ChunkLocation location;
  Bytes stored;
};

template <class T>
T must(Result<T> result) {
  if (result) return std::move(*result);
  fmt::print(stderr, "chunk_decode_bench: {}\n", result.error().to_string());
  std::exit(1);
}

std::vector<StoredCopy> draw(const std::shared_ptr<Store>& store, const char* image, size_t count) {
  const Image stored_image = must(ImageStore(store).resolve(image, kNoDeadline)).image;
  const auto map = must(LayerMap::open(store, stored_image.layers.back(), "/var/tmp", kNoDeadline));
  ChunkReader reader(store);
  std::mt19937_64 random(1);
  std::uniform_int_distribution<uint64_t> any_data(map->header().metadata_size,
                                                   map->header().image_size - 1);
  std::vector<StoredCopy> copies;
  for (size_t i = 0; i < count; ++i) {
    const ChunkLocation location = must(map->locate(any_data(random), kNoDeadline));
    copies.push_back({location, must(reader.fetch_stored({&location, 1}, kNoDeadline))});
  }
  return copies;
}

/// Microseconds per chunk with all CPUs at work.
double decode_all(const std::vector<StoredCopy>& copies) {
  std::atomic<size_t> next{0};
  std::atomic<bool> is_bad{false};
  std::vector<std::thread> threads;
  const uint64_t start_ns = monotonic_ns();
  for (unsigned i = 0; i < std::thread::hardware_concurrency(); ++i) {
    threads.emplace_back([&] {
      ChunkDecoder decoder;
      std::array<Bytes, kTogetherCount> raws;
      for (Bytes& raw : raws) raw.resize(kChunkBytesMax);
      std::vector<ChunkToDecode> chunks;
      for (size_t first; (first = next.fetch_add(kTogetherCount)) < copies.size();) {
        chunks.clear();
        for (size_t k = first; k < std::min(first + kTogetherCount, copies.size()); ++k) {
          const ChunkLocation& location = copies[k].location;
          chunks.push_back({copies[k].stored, location.is_raw, location.id,
                            MutableByteView(raws[k - first]).first(location.raw_size)});
        }
        for (const Status& decoded : decoder.decode_all(chunks)) {
          if (!decoded) is_bad = true;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (is_bad) {
    fmt::print(stderr, "chunk_decode_bench: a chunk is damaged\n");
    std::exit(1);
  }
  return static_cast<double>(monotonic_ns() - start_ns) / 1e3 / static_cast<double>(copies.size());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3 || argc > 5) {
    fmt::print(stderr, "usage: chunk_decode_bench STORE_URL IMAGE [COUNT [ROUNDS]]\n");
    return 2;
  }
  const size_t count = argc > 3 ? std::strtoul(argv[3], nullptr, 10) : 2000;
  const size_t rounds = argc > 4 ? std::strtoul(argv[4], nullptr, 10) : 5;
  if (count == 0 || rounds == 0) return 2;
  const auto copies = draw(must(open_store(argv[1], false)), argv[2], count);
  uint64_t raw_bytes = 0;
  for (const StoredCopy& copy : copies) raw_bytes += copy.location.raw_size;
  std::vector<double> times_us;
  for (size_t i = 0; i < rounds; ++i) times_us.push_back(decode_all(copies));
  std::sort(times_us.begin(), times_us.end());
  fmt::print(
      "{{\"cpus\": {}, \"chunks\": {}, \"rounds\": {}, \"mean_raw_bytes\": {}, "
      "\"chunk_us\": {:.2f}}}\n",
      std::thread::hardware_concurrency(), count, rounds, raw_bytes / count, times_us[rounds / 2]);
  return 0;
}
