#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "chunkstore/build/chunk_sink.h"
#include "chunkstore/build/data_writer.h"
#include "chunkstore/build/layer_builder.h"
#include "chunkstore/build/resolved_tree.h"

namespace varve::chunkstore {

/// Writes the metadata region of `tree` into `sink` and puts it before the data region.
///
/// @param plan         Where files lie; null when the tree's nodes carry their places.
/// @param data_chunks  The data region, in image order.
/// @param data_blocks  Its size in blocks.
/// @param counts       Passed on in the result, with inodes, names and types counted.
Result<BuiltLayer> write_metadata(const ResolvedTree& tree, const DataPlan* plan,
                                  std::vector<LayerChunk> data_chunks, uint64_t data_blocks,
                                  LayerCounts counts, const std::string& temp_directory,
                                  ChunkSink& sink);

}  // namespace varve::chunkstore
