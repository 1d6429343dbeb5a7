#include "chunkstore/format/placement.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "chunkstore/format/layer.h"
#include "chunkstore/format/object_prefix.h"
#include "chunkstore/format/pack.h"

namespace varve::chunkstore {
namespace {

constexpr uint32_t kEntryIsRaw = 1;

tl::unexpected<Error> corrupt(std::string message) {
  return fail(ErrorCode::kCorruption, std::move(message));
}

}  // namespace

Result<PlacementHeader> parse_placement_header(ByteView bytes, const Digest& layer,
                                               uint64_t chunk_count) {
  if (bytes.size() < kPlacementFixedBytes) return corrupt("placement is too short for its header");
  VARVE_TRY(check_object_prefix(bytes, kPlacementMagic));
  PlacementHeader header;
  const auto header_size = load_le<uint32_t>(bytes.data() + 20);
  std::copy_n(bytes.data() + 24, 32, header.layer.bytes.begin());
  header.chunk_count = load_le<uint64_t>(bytes.data() + 56);
  header.stored_bytes = load_le<uint64_t>(bytes.data() + 64);
  header.pack_count = load_le<uint32_t>(bytes.data() + 72);
  const auto page_entry_count = load_le<uint32_t>(bytes.data() + 76);
  if (header.layer != layer) return corrupt("placement is for layer " + header.layer.hex());
  if (header.chunk_count != chunk_count) {
    return corrupt(
        fmt::format("placement has {} chunks, its layer {}", header.chunk_count, chunk_count));
  }
  if (header.pack_count == 0 || header.pack_count > kPlacementPackCountMax ||
      header.pack_count > chunk_count) {
    return corrupt(
        fmt::format("placement has {} packs for {} chunks", header.pack_count, chunk_count));
  }
  if (header_size != header.header_size() || page_entry_count != kPlacementPageEntryCount) {
    return corrupt(fmt::format("placement header of {} bytes, pages of {} entries", header_size,
                               page_entry_count));
  }
  if (header.stored_bytes == 0 || header.stored_bytes > chunk_count * kChunkBytesMax) {
    return corrupt(
        fmt::format("{} chunks cannot be stored in {} bytes", chunk_count, header.stored_bytes));
  }
  return header;
}

Result<PlacementEntry> parse_placement_entry(ByteView bytes, uint32_t pack_count,
                                             uint32_t raw_size) {
  VARVE_CHECK_OP(bytes.size(), ==, kPlacementEntryBytes);
  PlacementEntry entry;
  entry.pack = load_le<uint32_t>(bytes.data());
  entry.offset = load_le<uint32_t>(bytes.data() + 4);
  entry.stored_size = load_le<uint32_t>(bytes.data() + 8);
  const auto flags = load_le<uint32_t>(bytes.data() + 12);
  if ((flags & ~kEntryIsRaw) != 0) {
    return fail(ErrorCode::kUnsupported, fmt::format("unknown placement flags {:#x}", flags));
  }
  entry.is_raw = (flags & kEntryIsRaw) != 0;
  if (entry.pack >= pack_count) {
    return corrupt(fmt::format("placement names pack {} of {}", entry.pack, pack_count));
  }
  const bool size_fits = entry.is_raw ? entry.stored_size == raw_size
                                      : entry.stored_size != 0 && entry.stored_size < raw_size;
  if (!size_fits || uint64_t{entry.offset} + entry.stored_size > kPackBytesMax) {
    return corrupt(fmt::format("placement has {} stored bytes at offset {} for a chunk of {}",
                               entry.stored_size, entry.offset, raw_size));
  }
  return entry;
}

Bytes encode_placement(const Placement& placement) {
  PlacementHeader header{placement.layer, placement.entries.size(), placement.stored_bytes,
                         static_cast<uint32_t>(placement.packs.size())};
  VARVE_CHECK_OP(placement.packs.size(), <=, kPlacementPackCountMax);
  Bytes object;
  object.reserve(header.object_size());
  append_object_prefix(object, kPlacementMagic);
  append_le<uint32_t>(object, static_cast<uint32_t>(header.header_size()));
  append(object, header.layer.view());
  append_le<uint64_t>(object, header.chunk_count);
  append_le<uint64_t>(object, header.stored_bytes);
  append_le<uint32_t>(object, header.pack_count);
  append_le<uint32_t>(object, kPlacementPageEntryCount);
  object.resize(kPlacementFixedBytes);
  for (const Digest& pack : placement.packs) append(object, pack.view());
  for (const PlacementEntry& entry : placement.entries) {
    append_le<uint32_t>(object, entry.pack);
    append_le<uint32_t>(object, entry.offset);
    append_le<uint32_t>(object, entry.stored_size);
    append_le<uint32_t>(object, entry.is_raw ? kEntryIsRaw : 0);
  }
  return object;
}

std::string encode_pointer(const Digest& digest) {
  return digest.hex() + "\n";
}

Result<Digest> parse_pointer(ByteView bytes) {
  const std::string_view text = as_text(bytes);
  if (text.size() == kPointerBytes && text.back() == '\n') {
    if (auto digest = Digest::from_hex(text.substr(0, 64))) return *digest;
  }
  return corrupt(quoted(text.substr(0, 80)) + " is not 64 hexadecimal digits and a newline");
}

}  // namespace varve::chunkstore
