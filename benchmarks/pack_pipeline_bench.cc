// pack_pipeline_bench DIRECTORY [ROUNDS [LEVEL]]: the pack builder alone, beside its arithmetic
// bound.
//
// The files below DIRECTORY (up to 512 MiB) are read into memory and cut into chunks of 64 KiB. In
// each round the same chunks are hashed and compressed by as many threads as there are CPUs and
// thrown away (the bound: nothing is locked, ordered or written), and then packed into a fresh
// store beside DIRECTORY's filesystem's temporary directory, publishing and syncing included.
// Prints one JSON object; what counts is the ratio within a round.

#include <fmt/format.h>
#include <ftw.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/file_io.h"
#include "base/temp_dir.h"
#include "chunkstore/build/pack_builder.h"
#include "chunkstore/format/chunk.h"

namespace {

using namespace varve;
using namespace varve::chunkstore;

constexpr size_t kInputBytesMax = 512u << 20;
constexpr size_t kChunkBytes = 64 << 10;

double seconds_since(uint64_t start_ns) {
  return static_cast<double>(monotonic_ns() - start_ns) / 1e9;
}

double cpu_seconds() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
         static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

/// The files of a tree, in the order of the walk.
std::vector<Bytes> read_chunks(const char* directory) {
  static std::vector<Bytes> chunks;
  static size_t size;
  const auto visit = [](const char* path, const struct stat* status, int type, struct FTW*) {
    if (type != FTW_F || size >= kInputBytesMax) return 0;
    const auto bytes = read_file(path, kInputBytesMax);
    if (!bytes) return 0;
    for (size_t at = 0; at < bytes->size(); at += kChunkBytes) {
      const size_t count = std::min(kChunkBytes, bytes->size() - at);
      chunks.emplace_back(bytes->begin() + static_cast<ptrdiff_t>(at),
                          bytes->begin() + static_cast<ptrdiff_t>(at + count));
      size += count;
    }
    return status->st_size < 0 ? 1 : 0;
  };
  nftw(directory, visit, 64, FTW_PHYS | FTW_MOUNT);
  return std::move(chunks);
}

/// Seconds to hash and compress everything on all CPUs.
double run_bound(const std::vector<Bytes>& chunks, int level) {
  std::atomic<size_t> next{0};
  std::atomic<uint64_t> stored_bytes{0};
  std::vector<std::thread> threads;
  const uint64_t start_ns = monotonic_ns();
  for (unsigned i = 0; i < std::thread::hardware_concurrency(); ++i) {
    threads.emplace_back([&] {
      ChunkEncoder encoder(level);
      for (size_t at = next++; at < chunks.size(); at = next++) {
        (void)sha256(chunks[at]);
        stored_bytes += encoder.encode(chunks[at]).bytes.size();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return seconds_since(start_ns);
}

/// Seconds to pack everything into a fresh store.
Result<double> run_pipeline(const std::vector<Bytes>& chunks, int level, PackBuilderStats& stats) {
  VARVE_ASSIGN(const TempDir dir, TempDir::create("varve-pack-bench-", "/var/tmp"));
  VARVE_ASSIGN(auto store, open_store(dir.path() + "/store", true));
  PackBuilderOptions options;
  options.compression_level = level;
  options.index_directory = dir.path() + "/index";
  LayerParts parts;
  const uint64_t start_ns = monotonic_ns();
  VARVE_ASSIGN(const auto builder, PackBuilder::create(store, std::move(options)));
  for (const Bytes& chunk : chunks) VARVE_TRY(builder->submit(chunk));
  VARVE_TRY(builder->drain());
  for (size_t i = 0; i < chunks.size(); ++i) {
    parts.chunks.push_back({builder->id(i), static_cast<uint32_t>(chunks[i].size())});
    parts.image_size += chunks[i].size();
  }
  // An image ends at a block.
  Bytes rest(align_up(parts.image_size + 1, 4096) - parts.image_size);
  parts.chunks.push_back({sha256(rest), static_cast<uint32_t>(rest.size())});
  parts.image_size += rest.size();
  parts.metadata_size = chunks[0].size();
  parts.root_nid = 36;
  VARVE_TRY(builder->submit(std::move(rest)));
  VARVE_TRY(builder->publish_layer(parts));
  const double seconds = seconds_since(start_ns);
  stats = builder->stats();
  return seconds;
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: %s DIRECTORY [ROUNDS [LEVEL]]\n", argv[0]);
    return 2;
  }
  const int round_count = argc > 2 ? std::atoi(argv[2]) : 5;
  const int level = argc > 3 ? std::atoi(argv[3]) : kCompressionLevelDefault;
  const std::vector<Bytes> chunks = read_chunks(argv[1]);
  if (chunks.empty() || round_count < 1) {
    std::fprintf(stderr, "%s: no file to read below %s, or no round\n", argv[0], argv[1]);
    return 1;
  }
  std::vector<double> bound_s, pipeline_s, ratios;
  PackBuilderStats stats;
  double bound_cpu_s = 0;
  double pipeline_cpu_s = 0;
  for (int round = 0; round < round_count; ++round) {
    double cpu_before_s = cpu_seconds();
    bound_s.push_back(run_bound(chunks, level));
    bound_cpu_s += cpu_seconds() - cpu_before_s;
    cpu_before_s = cpu_seconds();
    const auto seconds = run_pipeline(chunks, level, stats);
    if (!seconds) {
      std::fprintf(stderr, "%s\n", seconds.error().to_string().c_str());
      return 1;
    }
    pipeline_cpu_s += cpu_seconds() - cpu_before_s;
    pipeline_s.push_back(*seconds);
    ratios.push_back(bound_s.back() / *seconds);
  }
  const double raw_mb = static_cast<double>(stats.raw_bytes) / 1e6;
  fmt::print(
      "{{\"benchmark\": \"pack_pipeline\", \"cpus\": {}, \"n\": {}, \"level\": {}, \"raw_mb\": "
      "{:.1f},\n"
      " \"stored_mb\": {:.1f}, \"distinct_raw_mb\": {:.1f}, \"chunks\": {},\n"
      " \"bound_mb_per_s\": {:.1f}, \"pipeline_mb_per_s\": {:.1f},\n \"bound_cpu_s\": {:.2f}, "
      "\"pipeline_cpu_s\": {:.2f},\n"
      " \"bounds\": [{{\"what\": \"speed of the pipeline / of hashing and compressing alone\", "
      "\"measured\": {:.3f}, \"bound\": 0.85, \"met\": {}}}]}}\n",
      std::thread::hardware_concurrency(), round_count, level, raw_mb,
      static_cast<double>(stats.new_stored_bytes) / 1e6,
      static_cast<double>(stats.new_raw_bytes) / 1e6, stats.chunk_count, raw_mb / median(bound_s),
      raw_mb / median(pipeline_s), bound_cpu_s / round_count, pipeline_cpu_s / round_count,
      median(ratios), median(ratios) >= 0.85);
  return 0;
}
