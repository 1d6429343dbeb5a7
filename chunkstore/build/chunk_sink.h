#pragma once

#include <cstdint>

#include "base/bytes.h"
#include "base/error.h"
#include "base/hash.h"

namespace varve::chunkstore {

/// Takes the chunks of a layer and stores those that the store lacks: hashing, compression and
/// writing happen on other threads. One producer thread.
class ChunkSink {
 public:
  virtual ~ChunkSink() = default;

  /// Queues one chunk (1 … kChunkBytesMax raw bytes) and returns its ordinal: 0, 1, 2, … in order of
  /// calls. Blocks while the pipeline is full, so memory stays bounded. An earlier failure of the
  /// pipeline is reported by the next call.
  virtual Result<uint64_t> submit(Bytes raw) = 0;
  /// Waits until every chunk submitted so far has its id.
  virtual Status drain() = 0;
  /// Id of chunk `ordinal`; only after a drain() that followed its submit().
  virtual Digest id(uint64_t ordinal) const = 0;
};

}  // namespace varve::chunkstore
