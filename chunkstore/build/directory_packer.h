#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include "base/bytes.h"
#include "base/error.h"
#include "chunkstore/erofs/format.h"

namespace varve::chunkstore {

/// Packs the entries of one directory into blocks, adding `.` and `..` where they sort.
/// Loop-local.
class DirectoryPacker {
 public:
  using BlockTaker = std::function<Status(ByteView block)>;

  /// @param take_block  Gets each whole block, filled up with zeros.
  DirectoryPacker(uint64_t own_nid, uint64_t parent_nid, BlockTaker take_block);

  /// Names come in bytewise order.
  Status add(std::string_view name, uint64_t nid, erofs::FileType type);
  /// Returns the last block without its padding, at most erofs::kBlockBytes bytes.
  Result<Bytes> finish();

  uint64_t full_block_count() const { return full_block_count_; }
  uint32_t subdirectory_count() const { return subdirectory_count_; }

 private:
  Status add_dots_before(std::string_view name);
  Status append(std::string_view name, uint64_t nid, erofs::FileType type);
  Bytes take_block_bytes();

  uint64_t own_nid_;
  uint64_t parent_nid_;
  BlockTaker take_block_;
  int dot_count_ = 0;  ///< Of `.` and `..`, those added.
  Bytes heads_;
  Bytes names_;
  uint64_t full_block_count_ = 0;
  uint32_t subdirectory_count_ = 0;
};

}  // namespace varve::chunkstore
