#include "base/mount_api.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "base/temp_dir.h"

namespace varve {
namespace {

TEST(MountApiTest, AChrootWithoutAMountAtItsRootIsRefusedByName) {
  const TempDir directory = TempDir::create("varve-mount-api-").value();
  EXPECT_EXIT(
      {
        if (::chroot(directory.path().c_str()) != 0) std::_Exit(2);
        const auto status = unshare_mounts();
        if (!status) std::fputs(status.error().to_string().c_str(), stderr);
        std::_Exit(status ? 0 : 1);
      },
      testing::ExitedWithCode(1), "root directory is not a mount point");
}

}  // namespace
}  // namespace varve
