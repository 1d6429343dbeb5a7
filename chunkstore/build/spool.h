#pragma once

#include <cstdint>
#include <string>

#include "base/bytes.h"
#include "base/error.h"
#include "base/unique_fd.h"

namespace varve::chunkstore {

/// Bytes that are appended and read back at any offset: in memory while they are few, the rest in
/// an unlinked file. Loop-local.
class Spool {
 public:
  Spool(size_t memory_bytes_max, std::string temp_directory);

  /// Errors: those of writing the temporary file, naming its directory.
  Status append(ByteView bytes);
  /// Fills `to` from `offset`; all of it has been appended.
  Status read(uint64_t offset, MutableByteView to) const;
  uint64_t size() const { return file_size_ + memory_.size(); }

 private:
  Status flush();

  size_t memory_bytes_max_;
  std::string temp_directory_;
  Bytes memory_;  ///< The last bytes; those before are in the file.
  UniqueFd file_;
  uint64_t file_size_ = 0;
};

}  // namespace varve::chunkstore
