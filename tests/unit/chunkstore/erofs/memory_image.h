#pragma once

#include <algorithm>

#include "base/bytes.h"
#include "chunkstore/erofs/image_source.h"

namespace varve::chunkstore::erofs {

/// An image in memory, for tests.
class MemoryImage final : public ImageSource {
 public:
  explicit MemoryImage(Bytes bytes) : bytes_(std::move(bytes)) {}
  uint64_t size() const override { return bytes_.size(); }
  Status read(uint64_t offset, MutableByteView to) override {
    if (offset > bytes_.size() || to.size() > bytes_.size() - offset)
      return fail(ErrorCode::kCorruption, "read beyond the image");
    std::copy_n(bytes_.begin() + static_cast<ptrdiff_t>(offset), to.size(), to.begin());
    return {};
  }

 private:
  Bytes bytes_;
};

}  // namespace varve::chunkstore::erofs
