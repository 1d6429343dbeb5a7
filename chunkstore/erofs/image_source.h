#pragma once

#include <cstdint>

#include "base/bytes.h"
#include "base/error.h"

namespace varve::chunkstore::erofs {

/// The bytes of an EROFS image, wherever they come from. Thread-safe.
class ImageSource {
 public:
  virtual ~ImageSource() = default;
  virtual uint64_t size() const = 0;
  /// Bytes from the start in which inodes and directories can lie: fewer than size() where only
  /// they can be read. What a tree can hold is bounded by it.
  virtual uint64_t tree_bytes_max() const { return size(); }
  /// Fills `to` from `offset`; kCorruption when the image ends before that.
  virtual Status read(uint64_t offset, MutableByteView to) = 0;
};

}  // namespace varve::chunkstore::erofs
