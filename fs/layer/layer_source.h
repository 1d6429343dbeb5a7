#pragma once

#include <memory>
#include <string>

#include "base/clock.h"
#include "base/error.h"
#include "chunkstore/read/layer_map.h"
#include "chunkstore/store/store.h"
#include "fs/cache/single_flight.h"
#include "fs/fetch/store_session.h"

namespace varve::fs {

/// A store that has a layer, and where the layer's chunks lie in it. Thread-safe.
struct LayerSource {
  /// Reads the layer's header and placement. Blocks on the store.
  ///
  /// @param session  Its threads read from `store`, which it opened.
  /// @param spool_directory  Where the map's local pages lie.
  /// Errors: kNotFound, kCorruption, kTimedOut, … naming the layer.
  static Result<std::shared_ptr<LayerSource>> open(std::shared_ptr<StoreSession> session,
                                                   std::shared_ptr<chunkstore::Store> store,
                                                   const Digest& layer,
                                                   const std::string& spool_directory,
                                                   Deadline deadline);

  std::shared_ptr<StoreSession> session;
  std::shared_ptr<chunkstore::Store> store;
  std::unique_ptr<chunkstore::LayerMap> map;
  /// Of chunks by index. Not the layer's: who asks another store must not wait for one that hangs.
  SingleFlight flights;
};

}  // namespace varve::fs
