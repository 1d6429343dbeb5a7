#include "fs/fetch/chunk_fetcher.h"

#include <algorithm>

#include "chunkstore/format/keys.h"

namespace varve::fs {

using chunkstore::ChunkLocation;

namespace {

bool is_same_place(const ChunkLocation& a, const ChunkLocation& b) {
  return a.pack == b.pack && a.pack_offset == b.pack_offset && a.stored_size == b.stored_size &&
         a.is_raw == b.is_raw;
}

std::string describe(const ChunkLocation& location) {
  return "chunk " + location.id.short_hex() + " in pack " + location.pack.hex() + " at offset " +
         std::to_string(location.pack_offset);
}

// A newer placement may help: the pack is gone, too short, or holds other bytes.
bool may_have_moved(const Error& error) {
  return error.code() == ErrorCode::kNotFound || error.code() == ErrorCode::kCorruption;
}

}  // namespace

void ChunkFetcher::fetch(const ChunkOrigin& origin, std::span<const ChunkLocation> chunks,
                         Deadline deadline, ChunkConsumer& consumer) {
  for (size_t first = 0; first < chunks.size();) {
    const Run run = next_run(chunks, first);
    fetch_run(origin, chunks, run, deadline, consumer);
    first += run.count;
  }
}

ChunkFetcher::Run ChunkFetcher::next_run(std::span<const ChunkLocation> chunks, size_t first) {
  const ChunkLocation& start = chunks[first];
  Run run{first, 1, start.stored_size};
  for (size_t i = first + 1; i < chunks.size(); ++i) {
    const ChunkLocation& next = chunks[i];
    const uint64_t run_end = start.pack_offset + run.bytes;
    if (next.pack != start.pack || next.pack_offset < run_end ||
        next.pack_offset - run_end > kGapBytesMax) {
      break;
    }
    const uint64_t bytes = uint64_t{next.pack_offset} + next.stored_size - start.pack_offset;
    if (bytes > kRangeBytesMax) break;
    run.bytes = bytes;
    ++run.count;
  }
  return run;
}

Status ChunkFetcher::read_range(const ChunkOrigin& origin, const ChunkLocation& first,
                                uint64_t bytes, Deadline deadline) {
  if (buffer_.size() < bytes) buffer_.resize(bytes);
  origin.stats.range_reads.fetch_add(1, std::memory_order_relaxed);
  VARVE_TRY(origin.store.get_range(chunkstore::pack_key(first.pack), first.pack_offset,
                                   {buffer_.data(), bytes}, deadline));
  origin.stats.fetched_bytes.fetch_add(bytes, std::memory_order_relaxed);
  return {};
}

void ChunkFetcher::decode(std::span<const ChunkLocation> chunks, size_t first, size_t count,
                          uint64_t buffer_offset, ChunkConsumer& consumer, Failures& failures) {
  std::vector<chunkstore::ChunkToDecode> begun;
  std::vector<size_t> indexes;
  for (size_t i = first; i < first + count; ++i) {
    const auto raw = consumer.begin(i, chunks[i]);
    if (!raw) continue;
    const uint8_t* stored = buffer_.data() + (chunks[i].pack_offset - buffer_offset);
    begun.push_back({{stored, chunks[i].stored_size}, chunks[i].is_raw, chunks[i].id, *raw});
    indexes.push_back(i);
  }
  std::vector<Status> results = decoder_.decode_all(begun);
  for (size_t i = 0; i < results.size(); ++i) {
    if (results[i]) {
      consumer.decoded(indexes[i], chunks[indexes[i]]);
    } else {
      consumer.damaged(indexes[i]);
      failures.emplace_back(indexes[i], std::move(results[i]).error());
    }
  }
}

void ChunkFetcher::fetch_run(const ChunkOrigin& origin, std::span<const ChunkLocation> chunks,
                             const Run& run, Deadline deadline, ChunkConsumer& consumer) {
  const ChunkLocation& start = chunks[run.first];
  Status read = read_range(origin, start, run.bytes, deadline);
  if (!read && !may_have_moved(read.error())) {
    for (size_t i = run.first; i < run.first + run.count; ++i) {
      Error error = read.error();
      consumer.failed(i, chunks[i], error.with_context(describe(chunks[i])));
    }
    return;
  }
  // Refetching one chunk reuses the buffer, so what follows from this read is decoded first.
  Failures again;
  const size_t end = run.first + run.count;
  for (size_t i = run.first; read && i < end; i += kTogetherCountMax) {
    decode(chunks, i, std::min(kTogetherCountMax, end - i), start.pack_offset, consumer, again);
  }
  for (size_t i = run.first; !read && i < end; ++i) {
    // A truncated pack still holds its first chunks: each is asked for by itself.
    Status one = run.count > 1 ? fetch_one(origin, i, chunks[i], deadline, consumer) : read;
    if (!one) again.emplace_back(i, std::move(one).error());
  }
  for (auto& [index, error] : again) {
    fetch_again(origin, index, chunks[index], std::move(error), deadline, consumer);
  }
}

Status ChunkFetcher::fetch_one(const ChunkOrigin& origin, size_t index,
                               const ChunkLocation& location, Deadline deadline,
                               ChunkConsumer& consumer) {
  VARVE_TRY(read_range(origin, location, location.stored_size, deadline));
  const auto raw = consumer.begin(index, location);
  if (!raw) return {};
  Status decoded =
      decoder_.decode({buffer_.data(), location.stored_size}, location.is_raw, location.id, *raw);
  if (decoded) {
    consumer.decoded(index, location);
  } else {
    consumer.damaged(index);
  }
  return decoded;
}

void ChunkFetcher::fetch_again(const ChunkOrigin& origin, size_t index,
                               const ChunkLocation& location, Error error, Deadline deadline,
                               ChunkConsumer& consumer) {
  if (may_have_moved(error)) {
    const auto refreshed = origin.map.refresh_placement(deadline);
    const auto moved = origin.map.chunk(location.index, deadline);
    // Another thread may have brought the newer placement in before.
    if (moved && ((refreshed && *refreshed) || !is_same_place(*moved, location))) {
      Status second = fetch_one(origin, index, *moved, deadline, consumer);
      if (second) return;
      error = std::move(second).error();
      consumer.failed(index, *moved, error.with_context(describe(*moved)));
      return;
    }
  }
  consumer.failed(index, location, error.with_context(describe(location)));
}

}  // namespace varve::fs
