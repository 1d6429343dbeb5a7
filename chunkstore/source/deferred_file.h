#pragma once

#include <sys/stat.h>

#include <memory>
#include <string>

#include "base/unique_fd.h"
#include "chunkstore/source/entry.h"

namespace varve::chunkstore {

/// The key under which DirectoryContent opens the regular file `path` as `status` described it.
std::string deferred_file_key(std::string_view path, const struct statx& status);

/// Files of one directory tree, opened when the builder wants them. Thread-safe.
class DirectoryContent final : public DeferredContent {
 public:
  /// @param name  The root as the user wrote it, for messages.
  DirectoryContent(std::shared_ptr<const UniqueFd> root, std::string name)
      : root_(std::move(root)), name_(std::move(name)) {}

  Result<std::unique_ptr<ContentStream>> open(std::string_view key) const override;

 private:
  std::shared_ptr<const UniqueFd> root_;
  std::string name_;
};

}  // namespace varve::chunkstore
