// A layer object and a placement, opened and read through LayerMap. Input: u32 length of the layer,
// the layer, the placement. Hashes are put right first, which a hostile writer can do as well.

#include <algorithm>
#include <memory>

#include "chunkstore/format/keys.h"
#include "chunkstore/format/placement.h"
#include "chunkstore/read/layer_map.h"
#include "tests/support/memory_store.h"

using namespace varve;
using namespace varve::chunkstore;

namespace {

/// Makes the leaf table name the pages that are there, where the header can be read.
void put_leaf_hashes_right(Bytes& layer) {
  const auto header = parse_layer_header(layer);
  if (!header || header->object_size() != layer.size()) return;
  for (uint32_t leaf = 0; leaf < header->leaf_count(); ++leaf) {
    const Digest digest = sha256(ByteView(layer).subspan(
        header->leaf_page_offset(leaf), size_t{header->leaf_entry_count(leaf)} * kLeafEntryBytes));
    std::ranges::copy(digest.bytes,
                      layer.begin() + static_cast<ptrdiff_t>(kLayerHeaderFixedBytes +
                                                             leaf * kLeafTableEntryBytes));
  }
}

void read_everything(LayerMap& map) {
  uint64_t offset = 0;
  for (uint64_t i = 0; i < map.header().chunk_count; ++i) {
    const auto chunk = map.chunk(i, kNoDeadline);
    if (!chunk) return;
    if (chunk->image_offset != offset || chunk->raw_size == 0 || chunk->stored_size == 0) {
      __builtin_trap();
    }
    offset += chunk->raw_size;
    const auto located = map.locate(offset - 1, kNoDeadline);
    if (!located || located->index != i) __builtin_trap();
  }
  if (offset != map.header().image_size) __builtin_trap();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 4) return 0;
  const size_t layer_size = std::min<size_t>(load_le<uint32_t>(data), size - 4);
  Bytes layer(data + 4, data + 4 + layer_size);
  Bytes placement(data + 4 + layer_size, data + size);
  put_leaf_hashes_right(layer);
  const auto header = parse_layer_header(layer);
  const size_t header_size = header ? std::min<size_t>(header->header_size(), layer.size()) : 0;
  const Digest id = sha256(ByteView(layer).first(header_size));
  if (placement.size() >= 56) std::ranges::copy(id.bytes, placement.begin() + 24);
  const Digest placement_id = sha256(placement);
  auto store = std::make_shared<test::MemoryStore>();
  (void)store->replace(layer_key(id), layer, kNoDeadline);
  (void)store->replace(placement_key(id, placement_id), placement, kNoDeadline);
  (void)store->replace(current_placement_key(id), as_bytes(encode_pointer(placement_id)),
                       kNoDeadline);
  const auto map = LayerMap::open(store, id, "/tmp", kNoDeadline);
  if (map) read_everything(**map);
  return 0;
}
