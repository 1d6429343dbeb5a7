#include "chunkstore/layer_pack/flatten_inputs.h"

namespace varve::layer_pack {

Result<std::vector<chunkstore::FlattenInput>> flatten_inputs(const ImageView& view) {
  std::vector<chunkstore::FlattenInput> inputs;
  for (size_t layer = 0; layer < view.layer_count(); ++layer) {
    chunkstore::LayerMap& map = view.source(layer).map();
    chunkstore::FlattenInput input;
    input.reader = &view.reader(layer);
    input.image_size = map.header().image_size;
    input.metadata_size = map.header().metadata_size;
    input.chunks.reserve(map.header().chunk_count);
    for (uint64_t index = 0; index < map.header().chunk_count; ++index) {
      auto chunk = map.chunk(index, store_deadline());
      if (!chunk) return fail(std::move(chunk).error(), "layer " + map.layer().short_hex());
      input.chunks.push_back({chunk->id, chunk->raw_size});
    }
    inputs.push_back(std::move(input));
  }
  return inputs;
}

}  // namespace varve::layer_pack
