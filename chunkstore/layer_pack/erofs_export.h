#pragma once

#include <memory>
#include <string>

#include "base/error.h"
#include "chunkstore/layer_pack/image_view.h"
#include "chunkstore/layer_pack/output_file.h"
#include "chunkstore/layer_pack/progress.h"
#include "chunkstore/store/store.h"

namespace varve::layer_pack {

/// Writes the EROFS image of what `view` shows: its layers flattened, as `flatten` would store
/// them. Chunks are fetched and decoded by several threads. Returns the image's size in bytes.
Result<uint64_t> export_flattened(const std::shared_ptr<chunkstore::Store>& store,
                                  const ImageView& view, const std::string& temp_directory,
                                  OutputFile& to, Progress& progress);
/// Writes the lowest layer of `view` as it is, whiteouts and opaque marks included.
Result<uint64_t> export_layer(const std::shared_ptr<chunkstore::Store>& store,
                              const ImageView& view, OutputFile& to, Progress& progress);

}  // namespace varve::layer_pack
