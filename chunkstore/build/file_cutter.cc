#include "chunkstore/build/file_cutter.h"

#include <algorithm>
#include <cstring>

#include "chunkstore/build/fast_cdc.h"
#include "chunkstore/erofs/format.h"

namespace varve::chunkstore {
namespace {

// Cutting needs kChunkBytesMax bytes in sight; twice that keeps moves of the rest rare.
constexpr size_t kBufferBytes = 2 * fast_cdc::kChunkBytesMax;

/// Number of zeros that `bytes` begins with.
size_t leading_zeros(ByteView bytes) {
  size_t count = 0;
  while (bytes.size() - count >= 8 && load_le<uint64_t>(bytes.data() + count) == 0) count += 8;
  while (count < bytes.size() && bytes[count] == 0) ++count;
  return count;
}

}  // namespace

uint64_t hole_unit_bytes(uint64_t size) {
  uint64_t unit = kHoleUnitBytesMin;
  while (unit < kHoleUnitBytesMax && (size - 1) / unit + 1 > kHoleUnitCountMax && size > 0)
    unit *= 2;
  return unit;
}

FileCutter::FileCutter(uint64_t size, ChunkTaker take_chunk)
    : take_chunk_(std::move(take_chunk)), unit_bytes_(hole_unit_bytes(size)) {
  result_.size = size;
}

Status FileCutter::check_room(uint64_t count) const {
  if (count > result_.size - position_)
    return fail(ErrorCode::kInvalidArgument,
                "more content than its " + std::to_string(result_.size) + " bytes");
  return {};
}

Status FileCutter::write(ByteView bytes) {
  VARVE_TRY(check_room(bytes.size()));
  while (!bytes.empty()) {
    const uint64_t unit_left = unit_bytes_ - position_ % unit_bytes_;
    const ByteView part = bytes.first(std::min<uint64_t>(bytes.size(), unit_left));
    bytes = bytes.subspan(part.size());
    if (!unit_has_data_) {
      const size_t zeros = leading_zeros(part);
      pending_zeros_ += zeros;
      if (zeros < part.size()) {
        unit_has_data_ = true;
        VARVE_TRY(append_zeros(pending_zeros_));
        pending_zeros_ = 0;
        VARVE_TRY(append_data(part.subspan(zeros)));
      }
    } else {
      VARVE_TRY(append_data(part));
    }
    VARVE_TRY(end_unit_part(part.size()));
  }
  return {};
}

Status FileCutter::write_zeros(uint64_t count) {
  VARVE_TRY(check_room(count));
  while (count > 0) {
    const uint64_t part = std::min(count, unit_bytes_ - position_ % unit_bytes_);
    count -= part;
    if (unit_has_data_) {
      VARVE_TRY(append_zeros(part));
    } else {
      pending_zeros_ += part;
    }
    VARVE_TRY(end_unit_part(part));
  }
  return {};
}

/// Moves on by `count` bytes; at the end of a unit decides whether it was a hole.
Status FileCutter::end_unit_part(uint64_t count) {
  position_ += count;
  if (position_ % unit_bytes_ != 0) return {};
  if (!unit_has_data_) {
    const auto unit = static_cast<uint32_t>(position_ / unit_bytes_ - 1);
    auto& holes = result_.holes;
    if (!holes.empty() && holes.back().first + holes.back().count == unit) {
      ++holes.back().count;
    } else {
      holes.push_back({unit, 1});
    }
  }
  unit_has_data_ = false;
  pending_zeros_ = 0;
  return {};
}

Status FileCutter::append_data(ByteView bytes) {
  while (!bytes.empty()) {
    const ByteView part = bytes.first(std::min(bytes.size(), kBufferBytes - buffer_.size()));
    append(buffer_, part);
    bytes = bytes.subspan(part.size());
    if (buffer_.size() == kBufferBytes) VARVE_TRY(cut_full_buffer());
  }
  return {};
}

Status FileCutter::append_zeros(uint64_t count) {
  while (count > 0) {
    const size_t part = std::min<uint64_t>(count, kBufferBytes - buffer_.size());
    buffer_.resize(buffer_.size() + part);
    count -= part;
    if (buffer_.size() == kBufferBytes) VARVE_TRY(cut_full_buffer());
  }
  return {};
}

Status FileCutter::cut_full_buffer() {
  while (buffer_.size() - buffer_start_ >= fast_cdc::kChunkBytesMax)
    VARVE_TRY(take_front(fast_cdc::first_chunk_size(ByteView(buffer_).subspan(buffer_start_)), 0));
  buffer_.erase(buffer_.begin(), buffer_.begin() + static_cast<ptrdiff_t>(buffer_start_));
  buffer_start_ = 0;
  return {};
}

Status FileCutter::take_front(size_t size, size_t padding) {
  Bytes chunk;
  chunk.reserve(size + padding);
  append(chunk, ByteView(buffer_).subspan(buffer_start_, size));
  chunk.resize(size + padding);
  buffer_start_ += size;
  result_.stored_bytes += chunk.size();
  ++result_.chunk_count;
  return take_chunk_(std::move(chunk));
}

Result<CutFile> FileCutter::finish() {
  if (position_ != result_.size)
    return fail(ErrorCode::kInvalidArgument, "only " + std::to_string(position_) + " of its " +
                                                 std::to_string(result_.size) + " bytes came");
  // Zeros of a last unit that is not whole are data.
  VARVE_TRY(append_zeros(pending_zeros_));
  while (buffer_start_ < buffer_.size()) {
    const size_t left = buffer_.size() - buffer_start_;
    const size_t size = fast_cdc::first_chunk_size(ByteView(buffer_).subspan(buffer_start_));
    const uint64_t stored = result_.stored_bytes + size;
    const uint64_t padding = size == left ? align_up(stored, erofs::kBlockBytes) - stored : 0;
    VARVE_TRY(take_front(size, padding));
  }
  return std::move(result_);
}

}  // namespace varve::chunkstore
