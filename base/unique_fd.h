#pragma once

#include <utility>

#include "base/error.h"

namespace varve {

/// Owns a file descriptor; closes it once, never retries (close(2), NOTES). Move-only, empty (-1)
/// when moved from.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) reset(std::exchange(other.fd_, -1));
    return *this;
  }
  ~UniqueFd() { reset(); }

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  /// Gives up ownership.
  int release() { return std::exchange(fd_, -1); }
  /// Closes what is held, errors ignored, and takes `fd`.
  void reset(int fd = -1);
  /// Closes and reports what close(2) said; for files whose last write error matters.
  Status close();

 private:
  int fd_ = -1;
};

}  // namespace varve
