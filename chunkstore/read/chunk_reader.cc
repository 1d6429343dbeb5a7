#include "chunkstore/read/chunk_reader.h"

#include <fmt/format.h>

#include <utility>

#include "base/check.h"
#include "chunkstore/format/keys.h"

namespace varve::chunkstore {
namespace {

// More than this many callers at once is rare; a decoder is ~150 KiB.
constexpr size_t kIdleDecoderCountMax = 16;

std::string describe(const ChunkLocation& location) {
  return fmt::format("chunk {} in pack {} at offset {}", location.id.hex(), location.pack.hex(),
                     location.pack_offset);
}

/// Whether another placement, or another try, may help.
bool is_worth_a_refresh(const Error& error) {
  return error.code() == ErrorCode::kNotFound || error.code() == ErrorCode::kCorruption;
}

}  // namespace

bool are_neighbours(const ChunkLocation& first, const ChunkLocation& second) {
  return first.pack == second.pack &&
         uint64_t{first.pack_offset} + first.stored_size == second.pack_offset;
}

ChunkReader::ChunkReader(std::shared_ptr<Store> store) : store_(std::move(store)) {}
ChunkReader::~ChunkReader() = default;

Result<Bytes> ChunkReader::fetch_stored(std::span<const ChunkLocation> run, Deadline deadline) {
  VARVE_CHECK(!run.empty());
  uint64_t size = 0;
  for (size_t i = 0; i < run.size(); ++i) {
    VARVE_CHECK(i == 0 || are_neighbours(run[i - 1], run[i]));
    size += run[i].stored_size;
  }
  Bytes stored(size);
  if (auto status = store_->get_range(pack_key(run[0].pack), run[0].pack_offset, stored, deadline);
      !status) {
    return fail(std::move(status).error(), describe(run[0]));
  }
  fetched_bytes_.fetch_add(size, std::memory_order_relaxed);
  return stored;
}

Status ChunkReader::decode(const ChunkLocation& location, ByteView stored, MutableByteView raw) {
  VARVE_CHECK_OP(stored.size(), ==, location.stored_size);
  VARVE_CHECK_OP(raw.size(), ==, location.raw_size);
  const auto take_decoder = [&] {
    std::lock_guard lock(mutex_);
    if (idle_decoders_.empty()) return ChunkDecoder();
    ChunkDecoder decoder = std::move(idle_decoders_.back());
    idle_decoders_.pop_back();
    return decoder;
  };
  ChunkDecoder decoder = take_decoder();
  auto status = decoder.decode(stored, location.is_raw, location.id, raw);
  {
    std::lock_guard lock(mutex_);
    if (idle_decoders_.size() < kIdleDecoderCountMax) idle_decoders_.push_back(std::move(decoder));
  }
  if (!status) return fail(std::move(status).error(), describe(location));
  return {};
}

Result<Bytes> ChunkReader::read_once(const ChunkLocation& location, Deadline deadline) {
  VARVE_ASSIGN(const Bytes stored, fetch_stored({&location, 1}, deadline));
  Bytes raw(location.raw_size);
  VARVE_TRY(decode(location, stored, raw));
  return raw;
}

Result<Bytes> ChunkReader::read(LayerMap& map, const ChunkLocation& location, Deadline deadline) {
  auto first = read_once(location, deadline);
  if (first || !is_worth_a_refresh(first.error())) return first;
  // The chunk may have moved, or the transfer was damaged: one more try at where it should be now.
  if (!map.refresh_placement(deadline)) return first;
  VARVE_ASSIGN(const ChunkLocation moved, map.chunk(location.index, deadline));
  return read_once(moved, deadline);
}

Status ChunkReader::read_run(LayerMap& map, std::span<const ChunkLocation> run, Deadline deadline,
                             std::vector<Bytes>& to) {
  const auto stored = fetch_stored(run, deadline);
  if (!stored && !is_worth_a_refresh(stored.error())) return tl::unexpected(stored.error());
  size_t at = 0;
  for (const ChunkLocation& location : run) {
    Bytes raw(location.raw_size);
    const bool is_good =
        stored && decode(location, ByteView(*stored).subspan(at, location.stored_size), raw);
    at += location.stored_size;
    if (!is_good) {
      // Alone, with a second try: its neighbours may be fine.
      VARVE_ASSIGN(raw, read(map, location, deadline));
    }
    to.push_back(std::move(raw));
  }
  return {};
}

Result<std::vector<Bytes>> ChunkReader::read_all(LayerMap& map,
                                                 std::span<const ChunkLocation> locations,
                                                 Deadline deadline, uint32_t range_bytes_max) {
  std::vector<Bytes> chunks;
  chunks.reserve(locations.size());
  for (size_t first = 0; first < locations.size();) {
    size_t end = first + 1;
    uint64_t size = locations[first].stored_size;
    while (end < locations.size() && are_neighbours(locations[end - 1], locations[end]) &&
           size + locations[end].stored_size <= range_bytes_max) {
      size += locations[end].stored_size;
      ++end;
    }
    VARVE_TRY(read_run(map, locations.subspan(first, end - first), deadline, chunks));
    first = end;
  }
  return chunks;
}

}  // namespace varve::chunkstore
