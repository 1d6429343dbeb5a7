#pragma once

#include <string>

#include "base/bytes.h"
#include "base/error.h"
#include "base/unique_fd.h"

namespace varve::layer_pack {

/// A file that gets its name only when it is whole: written without one, synced and linked, or
/// renamed over the one that has it. A name that exists and is no regular file (a pipe, /dev/null),
/// and "-", standard output, are written directly. Destroyed unpublished, nothing is left, nor,
/// where the filesystem has files without names, after a kill. Loop-local.
class OutputFile {
 public:
  static Result<OutputFile> create(const std::string& wanted_path);
  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&&) = delete;
  ~OutputFile();

  /// Appends, through a buffer. Errors name the path.
  Status write(ByteView bytes);
  /// Appends zeros; a hole where the file is a regular one.
  Status write_zeros(uint64_t count);
  Status publish();

 private:
  OutputFile(std::string path, std::string temp_path, UniqueFd fd, bool is_unnamed = false)
      : path_(std::move(path)),
        temp_path_(std::move(temp_path)),
        fd_(std::move(fd)),
        is_unnamed_(is_unnamed) {}
  Status flush();
  Status give_name();

  std::string path_;
  std::string temp_path_;  // "" when written directly, or without a name
  UniqueFd fd_;
  bool is_unnamed_;
  Bytes buffer_;
  uint64_t size_ = 0;  // of the file, buffer excluded
};

}  // namespace varve::layer_pack
