#include "guard/capabilities.h"

#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

namespace varve::guard {
namespace {

constexpr uint64_t bit(int capability) {
  return uint64_t{1} << capability;
}

}  // namespace

const uint64_t kSandboxCapabilities =
    bit(CAP_CHOWN) | bit(CAP_DAC_OVERRIDE) | bit(CAP_FOWNER) | bit(CAP_FSETID) | bit(CAP_SETGID) |
    bit(CAP_SETUID) | bit(CAP_SETPCAP) | bit(CAP_SETFCAP) | bit(CAP_KILL) |
    bit(CAP_NET_BIND_SERVICE) | bit(CAP_SYS_CHROOT) | bit(CAP_AUDIT_WRITE);

int keep_only_capabilities(uint64_t keep_mask) {
  for (int capability = 0; capability < 64; ++capability) {
    if ((keep_mask & bit(capability)) != 0) continue;
    if (::prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) != 0) {
      if (errno == EINVAL && capability > 0) break;  // Past the kernel's last capability.
      return errno;
    }
  }
  if (::prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) != 0) return errno;
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2]{};
  for (int half = 0; half < 2; ++half) {
    data[half].effective = data[half].permitted = static_cast<uint32_t>(keep_mask >> (32 * half));
  }
  return ::syscall(SYS_capset, &header, data) == 0 ? 0 : errno;
}

}  // namespace varve::guard
