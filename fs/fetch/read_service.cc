#include "fs/fetch/read_service.h"

#include <sched.h>

#include <algorithm>
#include <cstring>

#include "fs/fetch/read_executor.h"

namespace varve::fs {
namespace {

// How far ahead of one reader to be, as decompressed bytes and as a part of the cache: what several
// readers have before them fits into the quarter that the cache has for it.
constexpr uint64_t kAheadBytesMax = 8 << 20;
constexpr uint64_t kAheadCacheShare = 16;

}  // namespace

ReadService::ReadService(ReadServiceOptions options, LogSink log,
                         PendingReads::IsBeingKilled killed)
    : options_(options),
      log_(std::move(log)),
      cache_(options.cache_bytes_max),
      pending_(std::move(killed), ask_another_source) {}

void ReadService::ask_another_source(const std::shared_ptr<ReadOperation>& read) {
  const auto other = read->layer->set_aside(*read->source);
  // The first one may still answer: whoever has the bytes first does.
  if (other != nullptr) other->session->pool().submit(read);
}

std::unique_ptr<ReadExecutor> ReadService::make_executor() {
  return std::make_unique<StoreReadExecutor>(cache_, pending_, log_);
}

void ReadService::read(Request& request, std::shared_ptr<AttachedLayer> layer,
                       std::vector<ReadSegment> segments, uint32_t size) {
  LayerStats& stats = layer->stats();
  stats.read_requests.fetch_add(1, std::memory_order_relaxed);
  stats.read_bytes.fetch_add(size, std::memory_order_relaxed);
  for (const ReadSegment& segment : segments) {
    if (segment.image_offset != ReadSegment::kHole) {
      stats.touched.mark(segment.image_offset, segment.size);
    }
  }
  // Held until the read is queued: the layer may prefer another one meanwhile.
  const auto source = layer->source();
  const bool is_local = copy_local(request, *layer, *source, segments);
  if (is_local) request.reply(size);
  follow(layer, *source, segments);
  if (is_local) return;
  auto operation =
      std::make_shared<ReadOperation>(request, std::move(layer), source, std::move(segments), size,
                                      deadline_after_ms(options_.read_deadline_ms));
  pending_.add(operation);
  source->session->pool().submit(std::move(operation));
}

void ReadService::follow(const std::shared_ptr<AttachedLayer>& layer, const LayerSource& source,
                         const std::vector<ReadSegment>& segments) {
  const chunkstore::LayerHeader& header = layer->header();
  const uint64_t chunk_bytes = header.image_size / header.chunk_count + 1;
  const uint64_t distance_max =
      std::min(kAheadBytesMax, cache_.bytes_max() / kAheadCacheShare) / chunk_bytes;
  for (const ReadSegment& segment : segments) {
    if (segment.image_offset == ReadSegment::kHole) continue;
    if (segment.image_offset < layer->metadata_bytes()) continue;
    const auto first = source.map->locate_local(segment.image_offset);
    const auto last = source.map->locate_local(segment.image_offset + segment.size - 1);
    // Only the first read of a leaf finds no map; those that follow it do.
    if (!first || !last) continue;
    const ChunkRange chunks = layer->read_ahead().on_read(first->index, last->index, distance_max);
    if (chunks.count == 0) continue;
    // A queue thread is on the CPU of the reader, or near it.
    source.session->pool().submit_ahead(
        {layer, chunks, deadline_after_ms(options_.read_deadline_ms), sched_getcpu()});
  }
}

bool ReadService::copy_local(Request& request, AttachedLayer& layer, const LayerSource& source,
                             const std::vector<ReadSegment>& segments) {
  const MutableByteView payload = request.payload();
  for (const ReadSegment& segment : segments) {
    uint8_t* to = payload.data() + segment.payload_offset;
    if (segment.image_offset == ReadSegment::kHole) {
      std::memset(to, 0, segment.size);
      continue;
    }
    const uint64_t end = segment.image_offset + segment.size;
    for (uint64_t offset = segment.image_offset; offset < end;) {
      uint64_t part_size;
      if (offset < layer.metadata_bytes()) {
        part_size = std::min(end, layer.metadata_bytes()) - offset;
        if (!layer.metadata().read(offset, {to, part_size})) return false;
      } else {
        const auto location = source.map->locate_local(offset);
        if (!location) return false;
        const ChunkBytes chunk = cache_.find(location->id);
        if (chunk == nullptr || chunk->size() != location->raw_size) return false;
        const uint64_t in_chunk = offset - location->image_offset;
        part_size = std::min<uint64_t>(end - offset, location->raw_size - in_chunk);
        std::memcpy(to, chunk->view().data() + in_chunk, part_size);
        layer.stats().memory_hits.fetch_add(1, std::memory_order_relaxed);
      }
      to += part_size;
      offset += part_size;
    }
  }
  return true;
}

}  // namespace varve::fs
