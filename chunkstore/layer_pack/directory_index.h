#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"
#include "chunkstore/build/layer_builder.h"
#include "chunkstore/source/entry.h"

namespace varve::layer_pack {

/// Remembers the directories of the layers of a build that are not in the store yet, so that a
/// directory which a later layer only implies gets the attributes that it has below. Kept in a
/// temporary LevelDB, so memory does not grow with the image. Loop-local.
class DirectoryIndex {
 public:
  static Result<std::unique_ptr<DirectoryIndex>> create(const std::string& temp_directory);
  virtual ~DirectoryIndex() = default;

  /// Records what `entry` of layer number `layer` (0 is the lowest) says about directories.
  virtual Status record(uint32_t layer, const chunkstore::Entry& entry) = 0;

  struct Answer {
    std::optional<chunkstore::DirectoryAttributes> attributes;
    bool is_hidden = false;  ///< A whiteout or opaque directory covers what is below all layers.
  };
  /// What the layers below number `layer` show at `path`.
  virtual Result<Answer> find(uint32_t layer, std::string_view path) = 0;
};

/// Passes entries on after recording them. Loop-local.
class RecordingSink final : public chunkstore::EntrySink {
 public:
  RecordingSink(chunkstore::EntrySink& inner, DirectoryIndex& index, uint32_t layer)
      : inner_(inner), index_(index), layer_(layer) {}
  Status add(chunkstore::Entry entry) override {
    VARVE_TRY(index_.record(layer_, entry));
    return inner_.add(std::move(entry));
  }

 private:
  chunkstore::EntrySink& inner_;
  DirectoryIndex& index_;
  const uint32_t layer_;
};

}  // namespace varve::layer_pack
