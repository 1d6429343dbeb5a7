#include "fs/descriptor_reserve.h"

#include <fcntl.h>
#include <sys/resource.h>

#include <algorithm>

#include "base/unique_fd.h"

namespace varve::fs {
namespace {

// More than the threads of several stores open at the same time.
constexpr rlim_t kReservedCountMax = 64;
// A low limit is shared more evenly.
constexpr rlim_t kReservedShare = 4;

}  // namespace

bool is_reserved_descriptor(int fd) {
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit)) return false;
  const rlim_t reserved = std::min(kReservedCountMax, limit.rlim_cur / kReservedShare);
  return static_cast<rlim_t>(fd) >= limit.rlim_cur - reserved;
}

bool only_reserved_descriptors_are_left() {
  const UniqueFd next(open("/", O_PATH | O_CLOEXEC));
  return !next || is_reserved_descriptor(next.get());
}

}  // namespace varve::fs
