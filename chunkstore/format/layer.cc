#include "chunkstore/format/layer.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "chunkstore/format/object_prefix.h"

namespace varve::chunkstore {
namespace {

tl::unexpected<Error> corrupt(std::string message) {
  return fail(ErrorCode::kCorruption, std::move(message));
}

Status check_bounds(const LayerHeader& header) {
  if (header.image_size == 0 || header.image_size > kImageBytesMax ||
      header.image_size % kImageBlockBytes != 0) {
    return corrupt(fmt::format("image size {} is not a multiple of {} up to {}", header.image_size,
                               kImageBlockBytes, kImageBytesMax));
  }
  if (header.metadata_size == 0 || header.metadata_size > header.image_size) {
    return corrupt(fmt::format("metadata size {} is outside 1 … image size {}",
                               header.metadata_size, header.image_size));
  }
  if (header.chunk_count == 0 ||
      header.chunk_count > uint64_t{kLeafCountMax} * kLeafEntryCountMax) {
    return corrupt(fmt::format("chunk count {} is outside 1 … {}", header.chunk_count,
                               uint64_t{kLeafCountMax} * kLeafEntryCountMax));
  }
  // Chunks have 1 byte to 1 MiB each.
  if (header.chunk_count > header.image_size ||
      header.image_size > header.chunk_count * kChunkBytesMax) {
    return corrupt(
        fmt::format("{} chunks cannot make {} bytes", header.chunk_count, header.image_size));
  }
  if (header.root_nid == 0 || header.root_nid > 0xffff) {
    return corrupt(fmt::format("root nid {} is outside 1 … 65535", header.root_nid));
  }
  return {};
}

}  // namespace

Result<LayerHeader> parse_layer_header(ByteView bytes) {
  if (bytes.size() < kLayerHeaderFixedBytes) return corrupt("layer is too short for its header");
  VARVE_TRY(check_object_prefix(bytes, kLayerMagic));
  LayerHeader header;
  const auto header_size = load_le<uint32_t>(bytes.data() + 20);
  header.image_size = load_le<uint64_t>(bytes.data() + 24);
  header.metadata_size = load_le<uint64_t>(bytes.data() + 32);
  header.chunk_count = load_le<uint64_t>(bytes.data() + 40);
  const auto leaf_count = load_le<uint32_t>(bytes.data() + 48);
  header.root_nid = load_le<uint32_t>(bytes.data() + 52);
  const auto leaf_entry_count = load_le<uint32_t>(bytes.data() + 56);
  const auto reserved = load_le<uint32_t>(bytes.data() + 60);
  VARVE_TRY(check_bounds(header));
  if (leaf_entry_count != kLeafEntryCountMax || reserved != 0) {
    return corrupt(
        fmt::format("leaves of {} entries, reserved word {}", leaf_entry_count, reserved));
  }
  if (leaf_count != header.leaf_count() || header_size != header.header_size()) {
    return corrupt(fmt::format("{} leaves and a header of {} bytes do not fit {} chunks",
                               leaf_count, header_size, header.chunk_count));
  }
  return header;
}

Result<std::vector<LayerLeaf>> parse_leaf_table(ByteView bytes, const LayerHeader& header,
                                                uint32_t first, uint64_t previous_offset) {
  VARVE_CHECK_OP(bytes.size() % kLeafTableEntryBytes, ==, 0u);
  std::vector<LayerLeaf> leaves(bytes.size() / kLeafTableEntryBytes);
  for (size_t i = 0; i < leaves.size(); ++i) {
    const uint8_t* at = bytes.data() + i * kLeafTableEntryBytes;
    std::copy_n(at, 32, leaves[i].digest.bytes.begin());
    const auto offset = load_le<uint64_t>(at + 32);
    leaves[i].first_offset = offset;
    const bool is_first = first + i == 0;
    const bool rises = is_first ? offset == 0 : offset > previous_offset;
    if (!rises || offset >= header.image_size) {
      return corrupt(fmt::format("leaf {} begins at image offset {}", first + i, offset));
    }
    previous_offset = offset;
  }
  return leaves;
}

Result<std::vector<LayerChunk>> parse_leaf(ByteView page, const LayerLeaf& leaf, uint64_t size) {
  if (sha256(page) != leaf.digest) return corrupt("leaf page does not match its hash");
  if (page.size() % kLeafEntryBytes != 0 || page.size() > kLeafPageBytesMax) {
    return corrupt(fmt::format("leaf page has {} bytes", page.size()));
  }
  std::vector<LayerChunk> chunks(page.size() / kLeafEntryBytes);
  uint64_t sum = 0;
  for (size_t i = 0; i < chunks.size(); ++i) {
    const uint8_t* at = page.data() + i * kLeafEntryBytes;
    std::copy_n(at, 32, chunks[i].id.bytes.begin());
    chunks[i].raw_size = load_le<uint32_t>(at + 32);
    if (chunks[i].raw_size == 0 || chunks[i].raw_size > kChunkBytesMax) {
      return corrupt(fmt::format("leaf entry {} has raw size {}", i, chunks[i].raw_size));
    }
    sum += chunks[i].raw_size;
  }
  if (sum != size) {
    return corrupt(fmt::format("chunks of a leaf make {} bytes instead of {}", sum, size));
  }
  return chunks;
}

Result<EncodedLayer> encode_layer(uint64_t image_size, uint64_t metadata_size, uint32_t root_nid,
                                  const std::vector<LayerChunk>& chunks) {
  LayerHeader header;
  header.image_size = image_size;
  header.metadata_size = metadata_size;
  header.root_nid = root_nid;
  header.chunk_count = chunks.size();
  if (auto status = check_bounds(header); !status) {
    return fail(ErrorCode::kInvalidArgument, "encoding a layer: " + status.error().to_string());
  }

  Bytes object;
  object.reserve(header.object_size());
  append_object_prefix(object, kLayerMagic);
  append_le<uint32_t>(object, static_cast<uint32_t>(header.header_size()));
  append_le<uint64_t>(object, image_size);
  append_le<uint64_t>(object, metadata_size);
  append_le<uint64_t>(object, header.chunk_count);
  append_le<uint32_t>(object, header.leaf_count());
  append_le<uint32_t>(object, root_nid);
  append_le<uint32_t>(object, kLeafEntryCountMax);
  append_le<uint32_t>(object, 0);
  object.resize(header.header_size());  // the leaf table follows when the leaves are known

  uint64_t offset = 0;
  bool metadata_ends_at_chunk = false;
  std::vector<uint64_t> first_offsets;
  for (size_t i = 0; i < chunks.size(); ++i) {
    if (i % kLeafEntryCountMax == 0) first_offsets.push_back(offset);
    append(object, chunks[i].id.view());
    append_le<uint32_t>(object, chunks[i].raw_size);
    if (chunks[i].raw_size == 0 || chunks[i].raw_size > kChunkBytesMax) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("chunk {} of a layer has {} bytes", i, chunks[i].raw_size));
    }
    offset += chunks[i].raw_size;
    metadata_ends_at_chunk |= offset == metadata_size;
  }
  if (offset != image_size || !metadata_ends_at_chunk) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("chunks of {} bytes do not make an image of {} with metadata of {}",
                            offset, image_size, metadata_size));
  }
  for (uint32_t leaf = 0; leaf < header.leaf_count(); ++leaf) {
    const ByteView page = ByteView(object).subspan(
        header.leaf_page_offset(leaf), size_t{header.leaf_entry_count(leaf)} * kLeafEntryBytes);
    const Digest digest = sha256(page);
    uint8_t* at = object.data() + kLayerHeaderFixedBytes + size_t{leaf} * kLeafTableEntryBytes;
    std::ranges::copy(digest.bytes, at);
    store_le<uint64_t>(at + 32, first_offsets[leaf]);
  }
  const Digest id = sha256(ByteView(object).first(header.header_size()));
  return EncodedLayer{id, std::move(object)};
}

}  // namespace varve::chunkstore
