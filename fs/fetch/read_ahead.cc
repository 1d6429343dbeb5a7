#include "fs/fetch/read_ahead.h"

#include <algorithm>

namespace varve::fs {
namespace {

// After so many reads of others a reader that proved itself counts as gone.
constexpr uint64_t kForgottenAfter = 64;
// What is brought ahead comes in so many pieces, so that some are decoded while one is fetched.
constexpr uint64_t kPieceCount = 4;

}  // namespace

ChunkRange ReadAhead::on_read(uint64_t first, uint64_t last, uint64_t distance_max) {
  std::lock_guard lock(mutex_);
  ++read_count_;
  Reader* reader = find(first);
  if (reader == nullptr) {
    // However many chunks it covers, one read says nothing about the next.
    least_useful() = {last, 1, last + 1, read_count_};
    return {};
  }
  reader->last_read = read_count_;
  if (last > reader->current) {
    reader->run_count += last - reader->current;
    reader->current = last;
  }
  reader->ahead_end = std::max(reader->ahead_end, reader->current + 1);
  if (!is_proven(*reader)) return {};

  const uint64_t distance = std::min(reader->run_count / 2, distance_max);
  const uint64_t end = std::min(reader->current + 1 + distance, chunk_count_);
  if (end <= reader->ahead_end) return {};
  if (end < chunk_count_ && end - reader->ahead_end < distance / kPieceCount) return {};
  const ChunkRange piece{reader->ahead_end, end - reader->ahead_end};
  reader->ahead_end = end;
  return piece;
}

bool ReadAhead::is_wanted(uint64_t chunk) const {
  std::lock_guard lock(mutex_);
  return std::ranges::any_of(readers_, [&](const Reader& reader) {
    return is_proven(reader) && read_count_ - reader.last_read <= kForgottenAfter &&
           chunk >= reader.current && chunk < reader.ahead_end;
  });
}

ReadAhead::Reader* ReadAhead::find(uint64_t first) {
  for (Reader& reader : readers_) {
    if (reader.run_count == 0) continue;
    // Requests overtake each other a little, and a reader may leave out some of what was brought.
    const uint64_t end = std::max(reader.current + 2, reader.ahead_end);
    if (first + 1 >= reader.current && first < end) return &reader;
  }
  return nullptr;
}

ReadAhead::Reader& ReadAhead::least_useful() {
  return *std::ranges::min_element(readers_, {}, [](const Reader& reader) {
    return reader.last_read + (is_proven(reader) ? kForgottenAfter : 0);
  });
}

}  // namespace varve::fs
