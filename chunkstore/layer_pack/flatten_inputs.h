#pragma once

#include <vector>

#include "base/error.h"
#include "chunkstore/build/flatten.h"
#include "chunkstore/layer_pack/image_view.h"

namespace varve::layer_pack {

/// The layers of `view` as flatten() takes them. Reads every leaf page.
Result<std::vector<chunkstore::FlattenInput>> flatten_inputs(const ImageView& view);

}  // namespace varve::layer_pack
