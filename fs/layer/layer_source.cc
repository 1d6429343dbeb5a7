#include "fs/layer/layer_source.h"

namespace varve::fs {

Result<std::shared_ptr<LayerSource>> LayerSource::open(std::shared_ptr<StoreSession> session,
                                                       std::shared_ptr<chunkstore::Store> store,
                                                       const Digest& layer,
                                                       const std::string& spool_directory,
                                                       Deadline deadline) {
  auto map = chunkstore::LayerMap::open(store, layer, spool_directory, deadline);
  if (!map) return fail(std::move(map).error(), "attaching layer " + layer.hex());
  auto source = std::make_shared<LayerSource>();
  source->session = std::move(session);
  source->store = std::move(store);
  source->map = std::move(*map);
  return source;
}

}  // namespace varve::fs
