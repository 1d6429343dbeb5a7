// A pack as the input: trailer, index, and every chunk. The index's hash is put right first, which
// a hostile writer can do as well.

#include <algorithm>

#include "chunkstore/format/chunk.h"
#include "chunkstore/format/pack.h"

using namespace varve;
using namespace varve::chunkstore;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Bytes pack(data, data + size);
  const size_t trailer_size = std::min(size, kPackTrailerBytes);
  auto trailer = parse_pack_trailer(ByteView(pack).last(trailer_size), size);
  if (!trailer) return 0;
  const ByteView index = ByteView(pack).subspan(trailer->index_offset, trailer->index_size());
  trailer->index_digest = sha256(index);
  const auto entries = parse_pack_index(index, *trailer);
  if (!entries) return 0;
  ChunkDecoder decoder;
  for (const PackEntry& entry : *entries) {
    Bytes raw(entry.raw_size);
    (void)decoder.decode(ByteView(pack).subspan(entry.offset, entry.stored_size), entry.is_raw,
                         entry.id, raw);
  }
  // What was read can be written, and is the same.
  const Bytes tail = encode_pack_tail(*entries, {});
  if (!std::ranges::equal(ByteView(tail).first(index.size()), index)) __builtin_trap();
  return 0;
}
