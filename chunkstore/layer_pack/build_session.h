#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/tool_io.h"
#include "chunkstore/build/layer_builder.h"
#include "chunkstore/build/pack_builder.h"
#include "chunkstore/format/image.h"
#include "chunkstore/format/ref.h"
#include "chunkstore/layer_pack/commands.h"
#include "chunkstore/layer_pack/directory_index.h"
#include "chunkstore/layer_pack/image_view.h"
#include "chunkstore/layer_pack/progress.h"
#include "chunkstore/read/image_store.h"
#include "chunkstore/source/entry.h"
#include "chunkstore/store/lease.h"

namespace varve::layer_pack {

/// Layers and configuration that an image is made on. Value type.
struct ImageParts {
  std::vector<Digest> layers;  ///< Lowest first.
  chunkstore::ImageConfig config;
  std::set<uint32_t> ids;  ///< Those of Image::ids.
  std::map<std::string, std::string> annotations;
};

/// The parts of an image or layer of the store. The ids of a bare layer are found by reading its
/// inodes. Errors name it. `temp_directory` as for ImageView.
Result<ImageParts> read_parts(const std::shared_ptr<chunkstore::Store>& store,
                              std::string_view name, const std::string& temp_directory = "");

/// `upper` over `lower`: members that `upper` leaves empty stay, environment variables and labels
/// replace those of the same name.
chunkstore::ImageConfig merge_configs(chunkstore::ImageConfig lower,
                                      const chunkstore::ImageConfig& upper);
/// Sets `KEY=VALUE` in `env`, in place when KEY is there. kInvalidArgument without a KEY and '='.
Status set_env(std::vector<std::string>& env, const std::string& assignment);

/// Whether the directory of `--temp-dir`, if it was given, can hold temporary files: looked at
/// before any work is done.
Status check_temp_dir(const PackOptions& options);

/// Nothing for "". Errors: as parse_ref.
Result<std::optional<chunkstore::RefName>> parse_tag(const std::string& tag);

/// `layers` (lowest first) without those below the topmost one whose root is opaque: overlayfs
/// merges the roots of layers whatever their marks, so what is hidden must not be mounted.
/// `temp_directory` as for ImageView.
Result<std::vector<Digest>> visible_layers(const std::shared_ptr<chunkstore::Store>& store,
                                           std::vector<Digest> layers,
                                           const std::string& temp_directory = "");

/// Publishes the image of `parts` and points `tag`, if there is one, at it.
Result<Digest> publish_parts(chunkstore::Store& store, chunkstore::Lease& lease,
                             const ImageParts& parts,
                             const std::optional<chunkstore::RefName>& tag);

/// An image that a command published. Value type.
struct PublishedImage {
  Digest id;
  std::vector<Digest> layers;
  std::optional<chunkstore::RefName> tag;
};
/// A layer that a command made, for what it prints.
struct NewLayer {
  chunkstore::PublishedLayer published;
  chunkstore::LayerCounts counts;
  uint64_t image_bytes = 0;
  uint64_t metadata_bytes = 0;
};
/// Prints what a command published.
Status print_published(const ToolIo& io, bool is_json, const PublishedImage& image,
                       const std::vector<NewLayer>& new_layers,
                       const std::optional<chunkstore::PackBuilderStats>& stats);

/// Builds layers into a store. What it builds becomes visible in publish(), all or nothing.
/// Loop-local.
class BuildSession {
 public:
  /// A chunk index that cannot be used is named once on standard error, and done without.
  static Result<std::unique_ptr<BuildSession>> open(std::shared_ptr<chunkstore::Store> store,
                                                    const PackOptions& options, const ToolIo& io);

  chunkstore::PackBuilder& packs() { return *packs_; }
  const std::string& temp_directory() const { return temp_directory_; }
  /// The options that a LayerBuilder of this session takes.
  chunkstore::LayerBuilderOptions builder_options() const;

  /// Reads `source` into a layer. Its chunks are stored, nothing is visible yet.
  /// @param index  When not null, what the source says about directories is recorded in it, as
  ///               layer number `layer`.
  Status build_layer(chunkstore::EntrySource& source, chunkstore::LayerBuilderOptions options,
                     Progress& progress, DirectoryIndex* index = nullptr, uint32_t layer = 0);
  void add_layer(chunkstore::BuiltLayer layer) { built_.push_back(std::move(layer)); }

  /// Publishes the layers built, at least one, an image of them on top of what `image` has, and the
  /// tag. All but writes of the store fails before anything is published.
  Result<PublishedImage> publish(ImageParts image, const std::optional<chunkstore::RefName>& tag);
  const std::vector<NewLayer>& new_layers() const { return new_layers_; }

 private:
  /// Of the layers built, the topmost one that is opaque at its root, or else the lowest.
  size_t first_visible() const;

  std::shared_ptr<chunkstore::Store> store_;
  std::unique_ptr<chunkstore::PackBuilder> packs_;
  std::string temp_directory_;
  size_t sort_memory_bytes_ = 0;
  std::vector<chunkstore::BuiltLayer> built_;
  std::vector<NewLayer> new_layers_;
};

}  // namespace varve::layer_pack
