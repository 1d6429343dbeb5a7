#include "chunkstore/format/pack.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "chunkstore/format/layer.h"
#include "chunkstore/format/object_prefix.h"

namespace varve::chunkstore {
namespace {

constexpr uint32_t kEntryIsRaw = 1;

Result<PackEntry> parse_entry(const uint8_t* at, uint64_t expected_offset) {
  PackEntry entry;
  std::copy_n(at, 32, entry.id.bytes.begin());
  entry.offset = load_le<uint32_t>(at + 32);
  entry.stored_size = load_le<uint32_t>(at + 36);
  entry.raw_size = load_le<uint32_t>(at + 40);
  const auto flags = load_le<uint32_t>(at + 44);
  if ((flags & ~kEntryIsRaw) != 0) {
    return fail(ErrorCode::kUnsupported, fmt::format("unknown flags {:#x}", flags));
  }
  entry.is_raw = (flags & kEntryIsRaw) != 0;
  if (entry.offset != expected_offset) {
    return fail(ErrorCode::kCorruption,
                fmt::format("offset is {}, not {}", entry.offset, expected_offset));
  }
  if (entry.raw_size == 0 || entry.raw_size > kChunkBytesMax) {
    return fail(ErrorCode::kCorruption,
                fmt::format("raw size {} is outside 1 … {}", entry.raw_size, kChunkBytesMax));
  }
  const bool size_fits = entry.is_raw
                             ? entry.stored_size == entry.raw_size
                             : entry.stored_size != 0 && entry.stored_size < entry.raw_size;
  if (!size_fits) {
    return fail(ErrorCode::kCorruption,
                fmt::format("stored size {} does not fit raw size {}{}", entry.stored_size,
                            entry.raw_size, entry.is_raw ? " stored raw" : ""));
  }
  return entry;
}

}  // namespace

Digest pack_id(ByteView pack) {
  VARVE_CHECK_OP(pack.size(), >=, kPackTrailerBytes);
  return sha256(pack.last(kPackTrailerBytes));
}

Bytes encode_pack_tail(const std::vector<PackEntry>& entries, const Xxh128& stored_hash) {
  Bytes tail;
  tail.reserve(entries.size() * kPackEntryBytes + kPackTrailerBytes);
  uint64_t offset = 0;
  for (const PackEntry& entry : entries) {
    VARVE_CHECK_OP(entry.offset, ==, offset);
    append(tail, entry.id.view());
    append_le<uint32_t>(tail, entry.offset);
    append_le<uint32_t>(tail, entry.stored_size);
    append_le<uint32_t>(tail, entry.raw_size);
    append_le<uint32_t>(tail, entry.is_raw ? kEntryIsRaw : 0);
    offset += entry.stored_size;
  }
  const Digest index_digest = sha256(tail);
  append_object_prefix(tail, kPackMagic);
  append_le<uint32_t>(tail, static_cast<uint32_t>(entries.size()));
  append_le<uint64_t>(tail, offset);
  append(tail, index_digest.view());
  append(tail, stored_hash.canonical());
  VARVE_CHECK_OP(offset + tail.size(), <=, kPackBytesMax);
  return tail;
}

Result<PackTrailer> parse_pack_trailer(ByteView bytes, uint64_t pack_size) {
  if (bytes.size() != kPackTrailerBytes || pack_size < kPackTrailerBytes) {
    return fail(ErrorCode::kCorruption, "pack is too short for its trailer");
  }
  VARVE_TRY(check_object_prefix(bytes, kPackMagic));
  if (pack_size > kPackBytesMax) {
    return fail(ErrorCode::kCorruption, fmt::format("pack has {} bytes, more than the {} allowed",
                                                    pack_size, kPackBytesMax));
  }
  PackTrailer trailer;
  trailer.entry_count = load_le<uint32_t>(bytes.data() + 20);
  trailer.index_offset = load_le<uint64_t>(bytes.data() + 24);
  std::copy_n(bytes.data() + 32, 32, trailer.index_digest.bytes.begin());
  std::copy_n(bytes.data() + 64, 16, trailer.stored_hash.begin());
  const uint64_t before_trailer = pack_size - kPackTrailerBytes;
  if (trailer.index_offset > before_trailer ||
      trailer.index_size() != before_trailer - trailer.index_offset) {
    return fail(ErrorCode::kCorruption,
                fmt::format("{} index entries at offset {} do not fit a pack of {} bytes",
                            trailer.entry_count, trailer.index_offset, pack_size));
  }
  return trailer;
}

Result<std::vector<PackEntry>> parse_pack_index(ByteView bytes, const PackTrailer& trailer) {
  if (bytes.size() != trailer.index_size()) {
    return fail(ErrorCode::kCorruption, fmt::format("index has {} bytes instead of {}",
                                                    bytes.size(), trailer.index_size()));
  }
  if (sha256(bytes) != trailer.index_digest) {
    return fail(ErrorCode::kCorruption, "index does not match its hash in the trailer");
  }
  std::vector<PackEntry> entries;
  entries.reserve(trailer.entry_count);
  uint64_t offset = 0;
  for (uint32_t i = 0; i < trailer.entry_count; ++i) {
    auto entry = parse_entry(bytes.data() + size_t{i} * kPackEntryBytes, offset);
    if (!entry) return fail(std::move(entry).error(), fmt::format("index entry {}", i));
    offset += entry->stored_size;
    entries.push_back(*entry);
  }
  if (offset != trailer.index_offset) {
    return fail(ErrorCode::kCorruption,
                fmt::format("chunks end at offset {}, the index begins at {}", offset,
                            trailer.index_offset));
  }
  return entries;
}

}  // namespace varve::chunkstore
