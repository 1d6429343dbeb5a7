#include "base/unique_fd.h"

#include <unistd.h>

namespace varve {

void UniqueFd::reset(int fd) {
  if (fd_ >= 0) ::close(fd_);
  fd_ = fd;
}

Status UniqueFd::close() {
  const int fd = release();
  if (fd >= 0 && ::close(fd) != 0) return fail_errno("closing a file");
  return {};
}

}  // namespace varve
