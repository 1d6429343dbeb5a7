#include "fs/mounter/erofs_mount.h"

#include <fcntl.h>
#include <linux/loop.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/file_io.h"
#include "base/mount_api.h"

namespace varve::fs::mounter {

Result<UniqueFd> make_erofs_mount(const std::string& source, bool directio) {
  const UniqueFd context(::fsopen("erofs", FSOPEN_CLOEXEC));
  if (!context) return fail_errno("opening filesystem type 'erofs'");
  VARVE_TRY(set_mount_options(context.get(), {{"source", source}, {"ro", ""}}));
  // A kernel that does not know the option keeps two copies of the data; it works all the same.
  if (directio) (void)set_mount_options(context.get(), {{"directio", ""}});
  return in_context(create_mount(context.get(), MOUNT_ATTR_RDONLY), "a new erofs");
}

bool can_mount_files(const std::string& socket_name) {
  // Such a kernel tries to open what is no block device, in vain; others refuse it as it is.
  if (mknod(socket_name.c_str(), S_IFSOCK | 0600, 0)) return true;
  const auto mounted = make_erofs_mount(socket_name, false);
  return mounted || mounted.error().errno_value() != ENOTBLK;
}

Result<LoopDevice> make_loop_device(int dev_fd, int image_fd) {
  VARVE_ASSIGN(const UniqueFd control, open_file_at(dev_fd, "loop-control", O_RDWR));
  // Another process may take the free device between the two calls.
  for (int attempt = 0; attempt < 64; ++attempt) {
    const int number = ioctl(control.get(), LOOP_CTL_GET_FREE);
    if (number < 0) return fail_errno("finding a free loop device");
    LoopDevice device;
    device.name = "loop" + std::to_string(number);
    VARVE_ASSIGN(device.fd, open_file_at(dev_fd, device.name, O_RDONLY));
    loop_config config{};
    config.fd = static_cast<uint32_t>(image_fd);
    config.block_size = 4096;
    // Direct: one copy of the data in memory instead of two.
    config.info.lo_flags = LO_FLAGS_READ_ONLY | LO_FLAGS_AUTOCLEAR | LO_FLAGS_DIRECT_IO;
    if (ioctl(device.fd.get(), LOOP_CONFIGURE, &config) == 0) return device;
    if (errno != EBUSY) return fail_errno("configuring '/dev/" + device.name + "'");
  }
  return fail(ErrorCode::kBusy, "no loop device stayed free long enough");
}

}  // namespace varve::fs::mounter
