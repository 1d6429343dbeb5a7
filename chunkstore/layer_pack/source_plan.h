#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "chunkstore/format/image.h"
#include "chunkstore/layer_pack/commands.h"
#include "chunkstore/source/entry.h"

namespace varve::layer_pack {

/// What a build is going to read: one source a layer, and the configuration that came with it.
struct SourcePlan {
  struct Layer {
    std::string name;  ///< For messages.
    std::function<Result<std::unique_ptr<chunkstore::EntrySource>>()> open;
  };
  chunkstore::ImageConfig config;
  std::vector<Layer> layers;  ///< Lowest first.
};

/// Finds out what options.source is (unless options.source_type says) and opens it. A directory
/// with `oci-layout` and `index.json` is an OCI layout; a tar is an image archive when its first
/// member besides the root is one that image archives begin with and it holds `manifest.json`, or
/// `oci-layout` and `index.json`.
Result<SourcePlan> plan_source(const BuildOptions& options);

}  // namespace varve::layer_pack
