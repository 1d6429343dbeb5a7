#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/unique_fd.h"

namespace varve::chunkstore {

/// A stack of paths of which only the upper ones lie in memory, the others in an unlinked file.
/// Not thread-safe.
class PathStack {
 public:
  /// What paths may take in memory, with what each costs beside its text.
  static constexpr size_t kMemoryBytesMax = size_t{32} << 20;

  explicit PathStack(std::string temp_directory, size_t memory_bytes_max = kMemoryBytesMax)
      : temp_directory_(std::move(temp_directory)), memory_bytes_max_(memory_bytes_max) {}

  bool empty() const { return upper_.empty() && spilled_.empty(); }
  /// Errors: of the temporary file.
  Status push(std::string path);
  /// The newest one. Errors: of the temporary file.
  Result<std::string> pop();

 private:
  /// Paths that were spilled together.
  struct Segment {
    uint64_t offset = 0;
    size_t bytes = 0;
  };

  Status spill();
  Status load();

  const std::string temp_directory_;
  const size_t memory_bytes_max_;
  std::vector<std::string> upper_;
  size_t upper_bytes_ = 0;
  std::vector<Segment> spilled_;
  UniqueFd file_;
};

}  // namespace varve::chunkstore
