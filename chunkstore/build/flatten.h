#pragma once

#include <string>
#include <vector>

#include "base/error.h"
#include "chunkstore/build/chunk_sink.h"
#include "chunkstore/build/layer_builder.h"
#include "chunkstore/erofs/reader.h"
#include "chunkstore/format/layer.h"

namespace varve::chunkstore {

/// A layer to be merged. `reader` must outlive the flattening.
struct FlattenInput {
  const erofs::Reader* reader = nullptr;
  uint64_t image_size = 0;  ///< From the layer's header.
  uint64_t metadata_size = 0;
  std::vector<LayerChunk> chunks;  ///< All of them, in image order.
};

struct FlattenOptions {
  /// What sorting may hold in memory before it spills, bytes.
  size_t sort_memory_bytes = 96u << 20;
  /// As LayerBuilderOptions::temp_directory.
  std::string temp_directory;
};

/// Merges layers into one that shows the tree which overlayfs would show: whiteouts and opaque
/// marks are applied and gone, hard links inside a layer stay hard links. Only metadata is written,
/// into `sink`; the data region is those of `layers` one after another, so all their chunks must be
/// known to whoever publishes the result.
///
/// @param layers  Lowest first, at least one. Nothing in them is trusted.
/// Errors: kCorruption and kUnsupported (a regular file with inline data), naming the path.
Result<BuiltLayer> flatten(const std::vector<FlattenInput>& layers, const FlattenOptions& options,
                           ChunkSink& sink);

}  // namespace varve::chunkstore
