#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/error.h"
#include "base/hash.h"
#include "chunkstore/store/store.h"

namespace varve::chunkstore {

/// A builder's local memory of which pack holds a chunk: LevelDB, filled from the indexes of the
/// store's packs. A hint only: whoever uses an answer reads the pack's own index first, so a stale,
/// lost or damaged index costs space or time and never a wrong layer. Thread-safe.
class ChunkIndex {
 public:
  /// Opens the index of `store` under `directory` and brings it up to date: packs that are new
  /// since the last time are read, packs that are gone are forgotten. What LevelDB finds damaged is
  /// made anew. Builders at the same time use an index each: `directory/0`, `directory/1`, … up
  /// to 63. Errors: kBusy (64 builders), the directory cannot be written, the store's.
  static Result<std::unique_ptr<ChunkIndex>> open(Store& store, const std::string& directory);
  virtual ~ChunkIndex() = default;

  /// A pack that held the chunk when the index was opened.
  virtual std::optional<Digest> find_pack(const Digest& chunk) = 0;
};

/// $XDG_CACHE_HOME/varve/index/<store id>, else below $HOME/.cache, else below /var/cache.
std::string default_index_directory(const Store& store);

}  // namespace varve::chunkstore
