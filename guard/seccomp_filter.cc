#include "guard/seccomp_filter.h"

#include <linux/seccomp.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

namespace varve::guard {
namespace {

constexpr sock_filter kFilter[] = {
#include "seccomp_filter.inc"
};

}  // namespace

std::span<const sock_filter> seccomp_filter() {
  return kFilter;
}

int install_seccomp_filter() {
  const sock_fprog program{static_cast<unsigned short>(std::size(kFilter)),
                           const_cast<sock_filter*>(kFilter)};
  return ::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0 ? 0 : errno;
}

}  // namespace varve::guard
