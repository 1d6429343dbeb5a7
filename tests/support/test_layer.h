#pragma once

#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/hash.h"
#include "chunkstore/store/store.h"

namespace varve::test {

/// A layer written to a store straight from the formats, for tests of readers.
struct TestLayer {
  Digest id;
  std::vector<Bytes> chunks;  ///< Raw, in image order.
  Bytes image;                ///< Their concatenation.
  std::vector<Digest> packs;
  Digest placement;
};

/// Aborts with the message when `status` is an error.
void must(const Status& status);

/// `count` chunks of text and noise, sizes from 1 byte to 256 KiB, that add up to a multiple of
/// 4,096. The same `seed` gives the same chunks.
std::vector<Bytes> make_chunks(size_t count, uint32_t seed, uint32_t bytes_max = 256 << 10);

/// Publishes packs of `chunks_per_pack` chunks, the layer and its placement. Aborts on failure.
TestLayer put_layer(chunkstore::Store& store, std::vector<Bytes> chunks,
                    size_t chunks_per_pack = SIZE_MAX);
/// Publishes another placement of `layer` with packs of `chunks_per_pack` chunks and puts it in
/// force.
void put_placement(chunkstore::Store& store, TestLayer& layer, size_t chunks_per_pack);
/// Publishes an image of these layers and a ref to it; returns its id.
Digest put_image(chunkstore::Store& store, const std::vector<Digest>& layers,
                 const std::string& ref);

}  // namespace varve::test
