#pragma once

#include <string>

#include "base/error.h"

namespace varve {

/// A fresh directory, mode 0700, removed with all it holds when the object goes. Move-only.
class TempDir {
 public:
  /// In `parent`, or $TMPDIR, or /tmp.
  static Result<TempDir> create(const std::string& prefix, const std::string& parent = "");
  TempDir(TempDir&& other) noexcept : path_(std::move(other.path_)) { other.path_.clear(); }
  TempDir& operator=(TempDir&& other) noexcept;
  ~TempDir();

  const std::string& path() const { return path_; }
  /// Leaves the directory in place.
  std::string release();

 private:
  explicit TempDir(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

}  // namespace varve
