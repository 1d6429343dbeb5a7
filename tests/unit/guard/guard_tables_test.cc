#include <gtest/gtest.h>
#include <linux/capability.h>

#include <set>
#include <string>

#include "guard/capabilities.h"
#include "guard/masks.h"

namespace varve::guard {
namespace {

TEST(GuardTablesTest, NoCapabilityThatReachesTheHostIsKept) {
  for (const int capability :
       {CAP_SYS_ADMIN, CAP_SYS_MODULE, CAP_SYS_RAWIO, CAP_SYS_PTRACE, CAP_SYS_TIME, CAP_SYS_BOOT,
        CAP_SYS_NICE, CAP_SYS_RESOURCE, CAP_NET_ADMIN, CAP_NET_RAW, CAP_MKNOD, CAP_DAC_READ_SEARCH,
        CAP_BPF, CAP_PERFMON, CAP_SYSLOG, CAP_MAC_ADMIN, CAP_WAKE_ALARM, CAP_BLOCK_SUSPEND}) {
    EXPECT_EQ(kSandboxCapabilities >> capability & 1, 0u) << capability;
  }
  EXPECT_EQ(kSandboxCapabilities >> CAP_CHOWN & 1, 1u);
  EXPECT_EQ(kSandboxCapabilities >> CAP_SETUID & 1, 1u);
}

TEST(GuardTablesTest, PathsAreRelativeCleanAndUnique) {
  std::set<std::string> seen;
  for (const ProcMask& mask : proc_masks()) {
    const std::string path = mask.path;
    EXPECT_TRUE(seen.insert(path).second) << path;
    EXPECT_NE(path.front(), '/') << path;
    EXPECT_EQ(path.find(".."), std::string::npos) << path;
    EXPECT_STRNE(mask.reason, "") << path;
  }
  for (const SysfsEntry& entry : visible_sysfs()) {
    const std::string path = entry.path;
    EXPECT_TRUE(seen.insert(path).second) << path;
    EXPECT_NE(path.front(), '/') << path;
    EXPECT_STRNE(entry.reason, "") << path;
  }
}

}  // namespace
}  // namespace varve::guard
