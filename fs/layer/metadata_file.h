#pragma once

#include "base/unique_fd.h"
#include "chunkstore/erofs/image_source.h"

namespace varve::fs {

/// The metadata region of an image in a local file without a name. Thread-safe.
class MetadataFile : public chunkstore::erofs::ImageSource {
 public:
  /// @param fd  Holds the first `metadata_bytes` of the image.
  MetadataFile(UniqueFd fd, uint64_t image_bytes, uint64_t metadata_bytes)
      : fd_(std::move(fd)), image_bytes_(image_bytes), metadata_bytes_(metadata_bytes) {}

  /// Of the whole image: extents of file data are valid although they cannot be read here.
  uint64_t size() const override { return image_bytes_; }
  uint64_t tree_bytes_max() const override { return metadata_bytes_; }
  /// kCorruption past the metadata region: nothing that a tree consists of may lie there.
  Status read(uint64_t offset, MutableByteView to) override;
  uint64_t metadata_bytes() const { return metadata_bytes_; }

 private:
  UniqueFd fd_;
  uint64_t image_bytes_;
  uint64_t metadata_bytes_;
};

}  // namespace varve::fs
