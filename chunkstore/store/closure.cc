#include "chunkstore/store/closure.h"

#include <fmt/format.h>

#include <algorithm>

#include "chunkstore/format/keys.h"

namespace varve::chunkstore {

Result<Digest> read_current_placement(Store& store, const Digest& layer, Deadline deadline) {
  const std::string key = current_placement_key(layer);
  VARVE_ASSIGN(const Bytes bytes, store.get(key, kPointerBytes, deadline));
  auto digest = parse_pointer(bytes);
  if (!digest) return fail(std::move(digest).error(), quoted(key));
  return digest;
}

Result<LayerHeader> read_layer_header(Store& store, const Digest& layer, Deadline deadline) {
  const std::string key = layer_key(layer);
  Bytes bytes(kLayerHeaderFixedBytes);
  VARVE_TRY(store.get_range(key, 0, bytes, deadline));
  auto header = parse_layer_header(bytes);
  if (!header) return fail(std::move(header).error(), quoted(key));
  return header;
}

Result<std::vector<Digest>> read_placement_packs(Store& store, const LayerHeader& header,
                                                 const Digest& layer, const Digest& placement,
                                                 Deadline deadline) {
  const std::string key = placement_key(layer, placement);
  Bytes bytes(kPlacementFixedBytes);
  VARVE_TRY(store.get_range(key, 0, bytes, deadline));
  auto parsed = parse_placement_header(bytes, layer, header.chunk_count);
  if (!parsed) return fail(std::move(parsed).error(), quoted(key));
  std::vector<Digest> packs(parsed->pack_count);
  Bytes table(size_t{parsed->pack_count} * 32);
  VARVE_TRY(store.get_range(key, kPlacementFixedBytes, table, deadline));
  for (size_t i = 0; i < packs.size(); ++i) {
    std::copy_n(table.begin() + static_cast<ptrdiff_t>(i * 32), 32, packs[i].bytes.begin());
  }
  return packs;
}

Result<std::vector<std::string>> layer_closure(Store& store, const Digest& layer,
                                               Deadline deadline) {
  VARVE_ASSIGN(const LayerHeader header, read_layer_header(store, layer, deadline));
  VARVE_ASSIGN(const Digest placement, read_current_placement(store, layer, deadline));
  VARVE_ASSIGN(const auto packs, read_placement_packs(store, header, layer, placement, deadline));
  std::vector<std::string> keys = {layer_key(layer), current_placement_key(layer),
                                   placement_key(layer, placement)};
  for (const Digest& pack : packs) keys.push_back(pack_key(pack));
  return keys;
}

Result<std::vector<PackEntry>> read_pack_index(Store& store, const Digest& pack,
                                               Deadline deadline) {
  const std::string key = pack_key(pack);
  VARVE_ASSIGN(const ObjectInfo info, store.stat(key, deadline));
  if (info.size < kPackTrailerBytes) {
    return fail(ErrorCode::kCorruption,
                fmt::format("{}: has {} bytes, too few for a trailer", quoted(key), info.size));
  }
  Bytes bytes(kPackTrailerBytes);
  VARVE_TRY(store.get_range(key, info.size - kPackTrailerBytes, bytes, deadline));
  auto trailer = parse_pack_trailer(bytes, info.size);
  if (!trailer) return fail(std::move(trailer).error(), quoted(key));
  if (const Digest found = pack_id(bytes); found != pack) {
    return fail(ErrorCode::kCorruption,
                fmt::format("{}: trailer has the hash {}", quoted(key), found.hex()));
  }
  bytes.resize(trailer->index_size());
  VARVE_TRY(store.get_range(key, trailer->index_offset, bytes, deadline));
  auto entries = parse_pack_index(bytes, *trailer);
  if (!entries) return fail(std::move(entries).error(), quoted(key));
  return entries;
}

}  // namespace varve::chunkstore
