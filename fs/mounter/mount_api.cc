#include "fs/mounter/mount_api.h"

#include <fcntl.h>
#include <linux/loop.h>
#include <linux/mount.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "base/file_io.h"

namespace varve::fs::mounter {
namespace {

int sys_fsopen(const char* type) {
  return static_cast<int>(syscall(SYS_fsopen, type, FSOPEN_CLOEXEC));
}
int sys_fsconfig(int fd, unsigned command, const char* key, const char* value) {
  return static_cast<int>(syscall(SYS_fsconfig, fd, command, key, value, 0));
}

// What the kernel wrote into the filesystem context, for the error's text.
std::string context_message(int fd) {
  char text[256];
  const ssize_t size = read(fd, text, sizeof(text));
  return size > 2 ? ": " + std::string(text + 2, static_cast<size_t>(size) - 2) : "";
}

}  // namespace

Result<UniqueFd> make_erofs_mount(const std::string& source, bool directio) {
  UniqueFd context(sys_fsopen("erofs"));
  if (!context) return fail_errno("fsopen of erofs");
  if (sys_fsconfig(context.get(), FSCONFIG_SET_STRING, "source", source.c_str()) ||
      sys_fsconfig(context.get(), FSCONFIG_SET_FLAG, "ro", nullptr)) {
    return fail_errno("setting the source");
  }
  // A kernel that does not know the option keeps two copies of the data; it works all the same.
  if (directio) sys_fsconfig(context.get(), FSCONFIG_SET_FLAG, "directio", nullptr);
  if (sys_fsconfig(context.get(), FSCONFIG_CMD_CREATE, nullptr, nullptr)) {
    const int error = errno;
    return fail_errno(error, "creating the erofs superblock" + context_message(context.get()));
  }
  UniqueFd mount_fd(
      static_cast<int>(syscall(SYS_fsmount, context.get(), FSMOUNT_CLOEXEC, MOUNT_ATTR_RDONLY)));
  if (!mount_fd) return fail_errno("fsmount");
  return mount_fd;
}

bool can_mount_files(const std::string& socket_name) {
  // Such a kernel tries to open what is no block device, in vain; others refuse it as it is.
  if (mknod(socket_name.c_str(), S_IFSOCK | 0600, 0)) return true;
  const auto mounted = make_erofs_mount(socket_name, false);
  return mounted || mounted.error().errno_value() != ENOTBLK;
}

Result<UniqueFd> clone_mount(const std::string& path) {
  UniqueFd fd(static_cast<int>(
      syscall(SYS_open_tree, AT_FDCWD, path.c_str(), OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC)));
  if (!fd) return fail_errno("open_tree");
  return fd;
}

Result<UniqueFd> clone_detached_mount(int mount_fd) {
  UniqueFd fd(static_cast<int>(
      syscall(SYS_open_tree, mount_fd, "", AT_EMPTY_PATH | OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC)));
  if (!fd) return fail_errno("open_tree");
  return fd;
}

Status attach_mount(int mount_fd, const std::string& path) {
  if (syscall(SYS_move_mount, mount_fd, "", AT_FDCWD, path.c_str(), MOVE_MOUNT_F_EMPTY_PATH)) {
    return fail_errno("move_mount");
  }
  return {};
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
