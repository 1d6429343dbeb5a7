#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "chunkstore/build/chunk_index.h"
#include "chunkstore/build/chunk_sink.h"
#include "chunkstore/format/chunk.h"
#include "chunkstore/format/layer.h"
#include "chunkstore/format/pack.h"
#include "chunkstore/read/layer_map.h"
#include "chunkstore/store/lease.h"
#include "chunkstore/store/store.h"

namespace varve::chunkstore {

struct PackBuilderOptions {
  int compression_level = kCompressionLevelDefault;
  /// Threads that hash and compress; 0 = one a CPU that this process may use.
  size_t thread_count = 0;
  /// Bytes held between submit() and their pack, at most; 8 MiB a thread where that is less, so that
  /// what waits is still in the CPU's cache.
  size_t in_flight_bytes_max = 48 << 20;
  uint32_t pack_bytes_max = kPackBytesMax;
  /// Where the chunk index lies; "" = default_index_directory(); unset = nothing of the store is
  /// reused.
  std::optional<std::string> index_directory = "";
  int64_t lease_ttl_s = kLeaseTtlS;
  SleepFunction sleep = sleep_for_real;
};

struct PackBuilderStats {
  uint64_t chunk_count = 0;      ///< Submitted.
  uint64_t raw_bytes = 0;        ///< Submitted.
  uint64_t new_chunk_count = 0;  ///< Written to new packs.
  uint64_t new_raw_bytes = 0;
  uint64_t new_stored_bytes = 0;
  uint64_t reused_chunk_count = 0;  ///< Distinct chunks found in the store.
  uint64_t reused_raw_bytes = 0;
  uint64_t pack_count = 0;  ///< New packs published.
};

/// What publish_layer() needs of a layer; its chunks went through this builder.
struct LayerParts {
  uint64_t image_size = 0;     ///< Bytes, a multiple of 4,096.
  uint64_t metadata_size = 0;  ///< Bytes from the start of the image; a chunk boundary.
  uint32_t root_nid = 0;
  std::vector<LayerChunk> chunks;  ///< In image order; each submitted or adopted.
};

struct PublishedLayer {
  Digest id;
  uint64_t stored_bytes = 0;  ///< Of its chunks, each counted once.
  bool is_new = false;        ///< False: the store had the layer already.
};

/// Stores chunks and publishes layers made of them.
///
/// Worker threads hash and compress, one thread writes packs in the order of submit(),
/// one publishes finished packs. A chunk that the build has seen, or that lies in a pack of
/// the store that may be relied on, is not stored again. What can become visible does so in this
/// order, each durable before the next: packs, placement, layer (image and ref: publish.h). When a
/// build fails, or is killed, packs may stay behind that nothing names; garbage collection takes
/// them.
///
/// One producer thread calls everything but stats(). Memory: in_flight_bytes_max, ~2 MiB a worker,
/// and ~80 bytes a distinct chunk.
class PackBuilder : public ChunkSink {
 public:
  /// Takes a lease and opens the chunk index. Errors: the store's, the index directory's.
  static Result<std::unique_ptr<PackBuilder>> create(std::shared_ptr<Store> store,
                                                     PackBuilderOptions options);
  /// The same with an index made elsewhere; it may be null, and options.index_directory is ignored.
  static Result<std::unique_ptr<PackBuilder>> create_with_index(std::shared_ptr<Store> store,
                                                                PackBuilderOptions options,
                                                                std::unique_ptr<ChunkIndex> index);

  /// Makes every chunk of a layer of the store known to this build without moving its bytes, so
  /// that publish_layer() can name it. Chunks in packs that are condemned are copied to new packs.
  virtual Status adopt(LayerMap& layer) = 0;
  /// Drains, publishes the packs, the placement and the layer.
  /// Errors: kInvalidArgument (a chunk that is not known, sizes that do not fit), kUnavailable (the
  /// lease has lapsed), the store's (kNoSpace when the disk is full).
  virtual Result<PublishedLayer> publish_layer(const LayerParts& parts) = 0;
  /// For publish_image() and publish_ref(); released when the builder goes, or by it.
  virtual Lease& lease() = 0;
  /// Thread-safe.
  virtual PackBuilderStats stats() const = 0;
};

}  // namespace varve::chunkstore
