#include "chunkstore/layer_pack/erofs_export.h"

#include <algorithm>
#include <deque>
#include <future>
#include <thread>

#include "base/thread_pool.h"
#include "chunkstore/layer_pack/flatten_inputs.h"
#include "chunkstore/layer_pack/spool_sink.h"
#include "chunkstore/read/chunk_reader.h"

namespace varve::layer_pack {
namespace {

using chunkstore::ChunkLocation;
using chunkstore::LayerMap;

/// Chunks that one task fetches: about a megabyte, with few range reads.
constexpr size_t kBatchChunkCount = 16;

/// Chunks [first, first + count) of one layer.
struct Batch {
  LayerMap* map = nullptr;
  uint64_t first = 0;
  uint64_t count = 0;
};

/// The first chunk of `map` that lies in the data region.
Result<uint64_t> first_data_chunk(LayerMap& map) {
  if (map.header().metadata_size == map.header().image_size) return map.header().chunk_count;
  VARVE_ASSIGN(const ChunkLocation location,
               map.locate(map.header().metadata_size, store_deadline()));
  return location.index;
}

/// Appends the chunks of `map` from number `first` on.
void append_batches(LayerMap& map, uint64_t first, std::vector<Batch>& batches) {
  for (uint64_t at = first; at < map.header().chunk_count; at += kBatchChunkCount) {
    batches.push_back(
        {&map, at, std::min<uint64_t>(kBatchChunkCount, map.header().chunk_count - at)});
  }
}

Result<std::vector<Bytes>> fetch(chunkstore::ChunkReader& reader, const Batch& batch) {
  std::vector<ChunkLocation> locations;
  for (uint64_t index = batch.first; index < batch.first + batch.count; ++index) {
    VARVE_ASSIGN(ChunkLocation location, batch.map->chunk(index, store_deadline()));
    locations.push_back(std::move(location));
  }
  return reader.read_all(*batch.map, locations, store_deadline());
}

/// Fetches batches on several threads, a few ahead, and writes them in order.
Status write_batches(chunkstore::ChunkReader& reader, const std::vector<Batch>& batches,
                     OutputFile& to, Progress& progress) {
  ThreadPool pool(std::max(2u, std::thread::hardware_concurrency()));
  const size_t ahead = 2 * pool.thread_count();
  std::deque<std::future<Result<std::vector<Bytes>>>> fetched;
  size_t next = 0;
  for (size_t written = 0; written < batches.size(); ++written) {
    for (; next < batches.size() && fetched.size() < ahead; ++next) {
      auto task = std::make_shared<std::packaged_task<Result<std::vector<Bytes>>()>>(
          [&reader, batch = batches[next]] { return fetch(reader, batch); });
      fetched.push_back(task->get_future());
      pool.submit([task] { (*task)(); });
    }
    VARVE_ASSIGN(const std::vector<Bytes> chunks, fetched.front().get());
    fetched.pop_front();
    for (const Bytes& chunk : chunks) {
      VARVE_TRY(to.write(chunk));
      progress.add_bytes(chunk.size());
    }
  }
  return {};
}

}  // namespace

Result<uint64_t> export_flattened(const std::shared_ptr<chunkstore::Store>& store,
                                  const ImageView& view, const std::string& temp_directory,
                                  OutputFile& to, Progress& progress) {
  VARVE_ASSIGN(SpoolSink metadata, SpoolSink::create(temp_directory));
  VARVE_ASSIGN(const auto inputs, flatten_inputs(view));
  chunkstore::FlattenOptions options;
  options.temp_directory = temp_directory;
  VARVE_ASSIGN(const chunkstore::BuiltLayer built, chunkstore::flatten(inputs, options, metadata));
  progress.add_expected_bytes(built.image_size);
  uint64_t offset = 0;
  for (auto chunk = built.chunks.begin(); offset < built.metadata_size; ++chunk) {
    VARVE_ASSIGN(const Bytes raw, metadata.read(chunk->id));
    VARVE_TRY(to.write(raw));
    progress.add_bytes(raw.size());
    offset += raw.size();
  }
  // The data region of a flattened layer is those of its layers, one after another.
  std::vector<Batch> batches;
  for (size_t layer = 0; layer < view.layer_count(); ++layer) {
    LayerMap& map = view.source(layer).map();
    VARVE_ASSIGN(const uint64_t first, first_data_chunk(map));
    append_batches(map, first, batches);
  }
  chunkstore::ChunkReader reader(store);
  VARVE_TRY(write_batches(reader, batches, to, progress));
  return built.image_size;
}

Result<uint64_t> export_layer(const std::shared_ptr<chunkstore::Store>& store,
                              const ImageView& view, OutputFile& to, Progress& progress) {
  LayerMap& map = view.source(0).map();
  progress.add_expected_bytes(map.header().image_size);
  std::vector<Batch> batches;
  append_batches(map, 0, batches);
  chunkstore::ChunkReader reader(store);
  VARVE_TRY(write_batches(reader, batches, to, progress));
  return map.header().image_size;
}

}  // namespace varve::layer_pack
