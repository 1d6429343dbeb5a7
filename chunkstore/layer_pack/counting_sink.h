#pragma once

#include <map>
#include <memory>

#include "chunkstore/layer_pack/progress.h"
#include "chunkstore/source/entry.h"

namespace varve::layer_pack {

/// Passes entries on and tells a Progress what goes by: entries, bytes that are still to be read
/// and bytes that have been. Loop-local.
class CountingSink final : public chunkstore::EntrySink {
 public:
  /// Both must outlive the content of every entry.
  CountingSink(chunkstore::EntrySink& inner, Progress& progress)
      : inner_(inner), progress_(progress) {}

  Status add(chunkstore::Entry entry) override;

 private:
  chunkstore::EntrySink& inner_;
  Progress& progress_;
  // A source has one content object; the wrapper is made once for it.
  std::map<const chunkstore::DeferredContent*, std::shared_ptr<const chunkstore::DeferredContent>>
      wrapped_;
};

}  // namespace varve::layer_pack
