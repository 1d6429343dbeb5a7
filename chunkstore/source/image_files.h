#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/unique_fd.h"
#include "chunkstore/source/byte_stream.h"

namespace varve::chunkstore {

/// Where one file lies: bytes [offset, offset + size) of a descriptor. Value type.
struct FileRange {
  std::shared_ptr<const UniqueFd> file;
  uint64_t offset = 0;
  uint64_t size = 0;

  std::unique_ptr<ByteStream> open() const { return open_range(file, offset, size); }
};

/// The files of an image layout, by name: a directory, or a tar that holds one. Names come from
/// hostile JSON: they never lead outside. Thread-safe after opening.
class ImageFiles {
 public:
  virtual ~ImageFiles() = default;
  /// Nothing when there is no file `name`. kInvalidArgument for names that leave the layout.
  virtual Result<std::optional<FileRange>> find(std::string_view name) const = 0;
  /// The layout as the user wrote it, for messages.
  virtual const std::string& display_name() const = 0;
};

Result<std::unique_ptr<ImageFiles>> open_image_directory(const std::string& path);

/// Indexes the tar `path` ("-" is standard input). One that is compressed or comes through a pipe
/// is first written, uncompressed, to a file without a name in `temp_directory`. Symlinks and hard
/// links between members are followed (docker-archive shares layers that way).
Result<std::unique_ptr<ImageFiles>> open_image_archive(const std::string& path,
                                                       const std::string& temp_directory);

}  // namespace varve::chunkstore
