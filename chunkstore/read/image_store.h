#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "chunkstore/format/image.h"
#include "chunkstore/format/ref.h"
#include "chunkstore/store/store.h"

namespace varve::chunkstore {

struct StoredImage {
  Digest id;
  Image image;
};

struct StoredRef {
  RefName name;
  Digest image;
};

/// The images and refs of a store. Thread-safe. Publishing them is PackBuilder's and
/// publish_image()'s part: it takes a lease.
class ImageStore {
 public:
  explicit ImageStore(std::shared_ptr<Store> store) : store_(std::move(store)) {}

  Store& store() const { return *store_; }
  const std::shared_ptr<Store>& shared_store() const { return store_; }

  /// Finds an image by ref (`name[:tag]`), id, or a prefix of an id (4 digits or more) that is
  /// unique. A ref wins over a prefix. Errors: kNotFound, kInvalidArgument (the prefix fits
  /// several).
  Result<StoredImage> resolve(std::string_view text, Deadline deadline) const;
  /// Reads and verifies an image. Errors: kNotFound, kCorruption, kUnsupported.
  Result<StoredImage> image(const Digest& id, Deadline deadline) const;
  /// Finds a layer by id or unique prefix; nothing when there is none.
  Result<std::optional<Digest>> find_layer(std::string_view text, Deadline deadline) const;

  /// What `ref` points at. Errors: kNotFound.
  Result<Digest> ref(const RefName& ref, Deadline deadline) const;
  /// Sorted by name. Keys below `refs/` that are no ref are left out.
  /// @param damaged  When not null, takes an error for each ref whose content is damaged, in place
  ///                 of failing with the first.
  Result<std::vector<StoredRef>> refs(Deadline deadline,
                                      std::vector<Error>* damaged = nullptr) const;
  /// Ids of all images, sorted, tagged or not.
  Result<std::vector<Digest>> images(Deadline deadline) const;
  /// Removes a ref; the image stays until garbage collection. Errors: kNotFound.
  Status remove_ref(const RefName& ref, Deadline deadline) const;

 private:
  Result<std::optional<Digest>> find_by_prefix(std::string_view directory, std::string_view what,
                                               std::string_view text, Deadline deadline) const;

  std::shared_ptr<Store> store_;
};

}  // namespace varve::chunkstore
