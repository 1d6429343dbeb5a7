#pragma once

#include <memory>
#include <string>

#include "base/unique_fd.h"
#include "chunkstore/erofs/image_source.h"

namespace varve::chunkstore::erofs {

/// An image in a local file. Thread-safe.
class FileImageSource final : public ImageSource {
 public:
  /// Takes the size that the file has now.
  static Result<std::unique_ptr<FileImageSource>> open(const std::string& path);

  uint64_t size() const override { return size_; }
  Status read(uint64_t offset, MutableByteView to) override;

 private:
  FileImageSource(UniqueFd fd, uint64_t size) : fd_(std::move(fd)), size_(size) {}

  UniqueFd fd_;
  uint64_t size_;
};

}  // namespace varve::chunkstore::erofs
