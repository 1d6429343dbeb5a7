#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/hash.h"
#include "chunkstore/format/layer.h"
#include "chunkstore/format/pack.h"
#include "chunkstore/format/placement.h"
#include "chunkstore/store/store.h"

/// What objects of a store need: for publishing, garbage collection, statistics and checks.
namespace varve::chunkstore {

/// The digest in `placements/<layer>/current`. Errors: kNotFound, kCorruption.
Result<Digest> read_current_placement(Store& store, const Digest& layer, Deadline deadline);

/// The fixed part of a layer's header. Not verified: its hash covers the leaf table too.
Result<LayerHeader> read_layer_header(Store& store, const Digest& layer, Deadline deadline);

/// A placement's packs, in the order of its table. Errors: kNotFound, kCorruption, kUnsupported.
Result<std::vector<Digest>> read_placement_packs(Store& store, const LayerHeader& header,
                                                 const Digest& layer, const Digest& placement,
                                                 Deadline deadline);

/// Keys of all that layer `layer` needs: itself, `current`, the placement in force, its packs.
Result<std::vector<std::string>> layer_closure(Store& store, const Digest& layer,
                                               Deadline deadline);

/// Index of a pack, checked against the pack's name and size: whoever has the name can rely on it.
Result<std::vector<PackEntry>> read_pack_index(Store& store, const Digest& pack, Deadline deadline);

}  // namespace varve::chunkstore
