// layer_builder_bench entries COUNT [SORT_MIB]: COUNT empty, small and linked entries in random
// order through the layer builder. layer_builder_bench files COUNT [SORT_MIB]: all of them small
// files with different content, the costliest kind. layer_builder_bench directory PATH [SORT_MIB]:
// the files of a tree. The sink drops what it gets, so this measures the producer alone: sorting,
// resolving, reading, cutting, hashing of small files, metadata. Prints one JSON object.

#include <sys/resource.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

#include "base/clock.h"
#include "chunkstore/build/layer_builder.h"
#include "chunkstore/source/directory_source.h"

namespace {

using namespace varve;
using namespace varve::chunkstore;

/// Gives every chunk another id and drops it.
class NullSink final : public ChunkSink {
 public:
  Result<uint64_t> submit(Bytes raw) override {
    bytes_ += raw.size();
    return count_++;
  }
  Status drain() override { return {}; }
  Digest id(uint64_t ordinal) const override {
    Digest id;
    store_le(id.bytes.data(), ordinal);
    return id;
  }
  uint64_t bytes() const { return bytes_; }

 private:
  uint64_t count_ = 0;
  uint64_t bytes_ = 0;
};

class TextStream final : public ContentStream {
 public:
  explicit TextStream(std::string text) : text_(std::move(text)) {}
  Result<size_t> read(MutableByteView to) override {
    const size_t size = std::min(to.size(), text_.size());
    std::memcpy(to.data(), text_.data(), size);
    text_.erase(0, size);
    return size;
  }

 private:
  std::string text_;
};

/// `count` entries whose order is a pseudo-random permutation of 0 … count - 1: like a tar whose
/// members were shuffled.
class SyntheticSource final : public EntrySource {
 public:
  SyntheticSource(uint64_t count, bool is_all_files) : count_(count), is_all_files_(is_all_files) {}
  Status read_into(EntrySink& sink) override {
    // A full-period congruential generator over the next power of two.
    uint64_t modulus = 1;
    while (modulus < count_) modulus *= 2;
    uint64_t at = 12345 % modulus;
    for (uint64_t step = 0; step < modulus; ++step) {
      at = (at * 1664525 + 1013904223) & (modulus - 1);
      if (at < count_) VARVE_TRY(add(at, sink));
    }
    return {};
  }

 private:
  static std::string path_of(uint64_t number) {
    return "usr/lib/package-" + std::to_string(number / 5000) + "/module-" +
           std::to_string(number / 40 % 125) + "/source-file-" + std::to_string(number) + ".py";
  }
  Status add(uint64_t number, EntrySink& sink) const {
    Entry entry;
    entry.path = path_of(number);
    entry.mode = 0644;
    entry.mtime_s = 1'700'000'000 + static_cast<int64_t>(number % 1000);
    TextStream stream("content of file " + std::to_string(number) + "\n");
    if (!is_all_files_ && number % 50 == 49) {
      entry.type = EntryType::kHardLink;
      entry.target = path_of(number - 1);
    } else if (is_all_files_ || number % 4 == 0) {
      entry.size = std::to_string(number).size() + 17;
      entry.stream = &stream;
    }
    return sink.add(std::move(entry));
  }

  uint64_t count_;
  bool is_all_files_;
};

Result<BuiltLayer> run(EntrySource& source, NullSink& sink, size_t sort_bytes) {
  LayerBuilderOptions options;
  if (sort_bytes != 0) options.sort_memory_bytes = sort_bytes;
  LayerBuilder builder(options, sink);
  VARVE_TRY(source.read_into(builder));
  return builder.finish();
}

}  // namespace

int main(int argc, char** argv) {
  const std::string kind = argc >= 3 ? argv[1] : "";
  const bool is_directory = kind == "directory";
  if (!is_directory && kind != "entries" && kind != "files") {
    std::fprintf(stderr, "usage: %s entries COUNT|files COUNT|directory PATH [SORT_MIB]\n",
                 argv[0]);
    return 2;
  }
  std::unique_ptr<EntrySource> source;
  if (is_directory) {
    auto opened = open_directory_source(argv[2], {});
    if (!opened) {
      std::fprintf(stderr, "%s\n", opened.error().to_string().c_str());
      return 1;
    }
    source = std::move(*opened);
  } else {
    source =
        std::make_unique<SyntheticSource>(std::strtoull(argv[2], nullptr, 10), kind == "files");
  }
  const size_t sort_bytes = argc > 3 ? std::strtoull(argv[3], nullptr, 10) << 20 : 0;
  NullSink sink;
  const uint64_t start_ns = monotonic_ns();
  const auto layer = run(*source, sink, sort_bytes);
  const double seconds = static_cast<double>(monotonic_ns() - start_ns) / 1e9;
  if (!layer) {
    std::fprintf(stderr, "%s\n", layer.error().to_string().c_str());
    return 1;
  }
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  const double cpu_s = static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                       static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
  std::printf(
      "{\"benchmark\": \"layer_builder\", \"input\": \"%s %s\", \"cpus\": %u, \"n\": 1,\n"
      " \"seconds\": %.3f, \"cpu_seconds\": %.3f, \"names\": %lu, \"names_per_second\": %.0f,\n"
      " \"file_bytes\": %lu, \"submitted_bytes\": %lu, \"megabytes_per_second\": %.1f,\n"
      " \"metadata_bytes\": %lu, \"metadata_bytes_per_inode\": %.1f,\n"
      " \"peak_rss_mib\": %.1f, \"peak_rss_bound_mib\": 512}\n",
      argv[1], argv[2], std::thread::hardware_concurrency(), seconds, cpu_s, layer->counts.names,
      static_cast<double>(layer->counts.names) / seconds, layer->counts.file_bytes, sink.bytes(),
      static_cast<double>(layer->counts.file_bytes) / 1e6 / seconds, layer->metadata_size,
      static_cast<double>(layer->metadata_size) / static_cast<double>(layer->counts.inodes),
      static_cast<double>(usage.ru_maxrss) / 1024);
  return 0;
}
