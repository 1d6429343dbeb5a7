#pragma once

#include <string>

#include "base/bytes.h"
#include "base/error.h"
#include "base/unique_fd.h"

namespace varve::layer_pack {

/// A file that gets its name only when it is whole: written beside it, synced and renamed. A name
/// that exists and is no regular file (a pipe, /dev/null), and "-", standard output, are written
/// directly. Destroyed unpublished, nothing is left. Loop-local.
class OutputFile {
 public:
  static Result<OutputFile> create(const std::string& path);
  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&&) = delete;
  ~OutputFile();

  /// Appends, through a buffer. Errors name the path.
  Status write(ByteView bytes);
  /// Appends zeros; a hole where the file is a regular one.
  Status write_zeros(uint64_t count);
  Status publish();

 private:
  OutputFile(std::string path, std::string temp_path, UniqueFd fd)
      : path_(std::move(path)), temp_path_(std::move(temp_path)), fd_(std::move(fd)) {}
  Status flush();

  std::string path_;
  std::string temp_path_;  // "" when written directly
  UniqueFd fd_;
  Bytes buffer_;
  uint64_t size_ = 0;  // of the file, buffer excluded
};

}  // namespace varve::layer_pack
