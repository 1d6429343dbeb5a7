#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "chunkstore/erofs/merged_tree.h"
#include "chunkstore/erofs/reader.h"
#include "chunkstore/read/image_store.h"
#include "chunkstore/read/layer_image_source.h"
#include "chunkstore/store/store.h"

namespace varve::layer_pack {

/// The deadline of one store operation that begins now.
Deadline store_deadline();
/// For reads that LayerImageSource makes, in milliseconds.
inline constexpr int64_t kStoreTimeoutMs = 60'000;

/// The layers of `images`, which are refs, ids or unique prefixes of ids of images or layers.
/// `image` is set when the name was that of an image.
struct ResolvedName {
  std::vector<Digest> layers;
  std::optional<chunkstore::StoredImage> image;
};
Result<ResolvedName> resolve_name(const chunkstore::ImageStore& images, std::string_view name);

/// An image opened for reading: its layers and what they show together. Move-only; loop-local.
class ImageView {
 public:
  /// @param layers          Lowest first, at least one.
  /// @param temp_directory  For the lists of chunks; "" = $TMPDIR or /var/tmp.
  static Result<ImageView> open(std::shared_ptr<chunkstore::Store> store,
                                const std::vector<Digest>& layers,
                                const std::string& temp_directory = "");

  const chunkstore::erofs::MergedTree& tree() const { return *tree_; }
  size_t layer_count() const { return sources_.size(); }
  /// 0 is the lowest.
  chunkstore::LayerImageSource& source(size_t layer) const { return *sources_[layer]; }
  const chunkstore::erofs::Reader& reader(size_t layer) const { return *readers_[layer]; }

  /// Follows `path` inside the image, symlinks too (never out of it); with `follow_last` off a
  /// symlink at the end is what is returned. Errors name the path: kNotFound, kInvalidArgument.
  Result<chunkstore::erofs::MergedNode> find(std::string_view path, bool follow_last) const;

 private:
  std::vector<std::unique_ptr<chunkstore::LayerImageSource>> sources_;
  std::vector<std::unique_ptr<chunkstore::erofs::Reader>> readers_;
  std::unique_ptr<chunkstore::erofs::MergedTree> tree_;
};

}  // namespace varve::layer_pack
