#include "tests/support/test_layer.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>

#include "chunkstore/format/chunk.h"
#include "chunkstore/format/image.h"
#include "chunkstore/format/keys.h"
#include "chunkstore/format/layer.h"
#include "chunkstore/format/pack.h"
#include "chunkstore/format/placement.h"

namespace varve::test {

using namespace chunkstore;  // NOLINT: a test helper over one namespace

void must(const Status& status) {
  if (status) return;
  std::fprintf(stderr, "%s\n", status.error().to_string().c_str());
  std::abort();
}

std::vector<Bytes> make_chunks(size_t count, uint32_t seed, uint32_t bytes_max) {
  std::mt19937 random(seed);
  std::vector<Bytes> chunks(count);
  size_t sum = 0;
  for (size_t i = 0; i < count; ++i) {
    size_t size = 1 + random() % bytes_max;
    // The last one ends the image at a block.
    if (i + 1 == count) size = align_up(sum + 1, kImageBlockBytes) - sum;
    const bool is_noise = random() % 4 == 0;
    chunks[i].resize(size);
    for (uint8_t& byte : chunks[i]) byte = static_cast<uint8_t>(random() % (is_noise ? 256 : 4));
    sum += size;
  }
  return chunks;
}

void put_placement(Store& store, TestLayer& layer, size_t chunks_per_pack) {
  Placement placement;
  placement.layer = layer.id;
  layer.packs.clear();
  ChunkEncoder encoder(1);
  for (size_t first = 0; first < layer.chunks.size(); first += chunks_per_pack) {
    const size_t end = first + std::min(chunks_per_pack, layer.chunks.size() - first);
    Bytes pack;
    std::vector<PackEntry> entries;
    for (size_t i = first; i < end; ++i) {
      const StoredChunk stored = encoder.encode(layer.chunks[i]);
      entries.push_back({sha256(layer.chunks[i]), static_cast<uint32_t>(pack.size()),
                         static_cast<uint32_t>(stored.bytes.size()),
                         static_cast<uint32_t>(layer.chunks[i].size()), stored.is_raw});
      placement.entries.push_back({static_cast<uint32_t>(layer.packs.size()), entries.back().offset,
                                   entries.back().stored_size, stored.is_raw});
      placement.stored_bytes += stored.bytes.size();
      append(pack, stored.bytes);
    }
    append(pack, encode_pack_tail(entries, xxh3_128(pack)));
    layer.packs.push_back(pack_id(pack));
    store.put_if_absent(pack_key(layer.packs.back()), pack, kNoDeadline).value();
    if (end == layer.chunks.size()) break;
  }
  placement.packs = layer.packs;
  const Bytes object = encode_placement(placement);
  layer.placement = sha256(object);
  store.put_if_absent(placement_key(layer.id, layer.placement), object, kNoDeadline).value();
  must(store.replace(current_placement_key(layer.id), as_bytes(encode_pointer(layer.placement)),
                     kNoDeadline));
}

TestLayer put_layer(Store& store, std::vector<Bytes> chunks, size_t chunks_per_pack) {
  TestLayer layer;
  layer.chunks = std::move(chunks);
  std::vector<LayerChunk> layer_chunks;
  for (const Bytes& chunk : layer.chunks) {
    layer_chunks.push_back({sha256(chunk), static_cast<uint32_t>(chunk.size())});
    append(layer.image, chunk);
  }
  const EncodedLayer encoded =
      encode_layer(layer.image.size(), layer.chunks[0].size(), 36, layer_chunks).value();
  layer.id = encoded.id;
  put_placement(store, layer, chunks_per_pack);
  store.put_if_absent(layer_key(layer.id), encoded.object, kNoDeadline).value();
  return layer;
}

Digest put_image(Store& store, const std::vector<Digest>& layers, const std::string& ref) {
  Image image;
  image.layers = layers;
  const Bytes bytes = encode_image(image).value();
  const Digest id = sha256(bytes);
  store.put_if_absent(image_key(id), bytes, kNoDeadline).value();
  must(store.replace(ref_key(parse_ref(ref).value()), as_bytes(encode_pointer(id)), kNoDeadline));
  return id;
}

}  // namespace varve::test
