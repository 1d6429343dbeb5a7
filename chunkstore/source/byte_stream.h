#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/bytes.h"
#include "base/error.h"
#include "base/unique_fd.h"

namespace varve::chunkstore {

/// Bytes that arrive in order. Loop-local.
class ByteStream {
 public:
  virtual ~ByteStream() = default;
  /// Fills the front of `to` (not empty) and returns how many bytes; 0 only at the end.
  virtual Result<size_t> read(MutableByteView to) = 0;
  /// Moves `count` bytes on. kInvalidArgument when the stream ends before that.
  virtual Status skip(uint64_t count) = 0;
};

/// Fills `to`; kInvalidArgument "ends … bytes too early" when the stream is shorter.
Status read_exact(ByteStream& from, MutableByteView to);

/// Bytes [offset, offset + size) of a file. Shares the descriptor, never its position, so several
/// ranges may be read at once.
std::unique_ptr<ByteStream> open_range(std::shared_ptr<const UniqueFd> file, uint64_t offset,
                                       uint64_t size);

/// The whole of a file, pipe or terminal, read from the descriptor's current position.
std::unique_ptr<ByteStream> open_descriptor(UniqueFd fd);

/// `from` without its compression: gzip, bzip2, xz, lzma and zstd (also several streams one after
/// another) are recognised by their first bytes, anything else passes through unchanged. Done by
/// zlib and libarchive's filters. kInvalidArgument when the compressed stream is damaged or ends
/// early, as far as its own checksums tell.
Result<std::unique_ptr<ByteStream>> decompress(std::unique_ptr<ByteStream> from);

}  // namespace varve::chunkstore
