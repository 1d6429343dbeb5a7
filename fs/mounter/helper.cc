#include "fs/mounter/helper.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <map>

#include "base/file_io.h"
#include "base/mount_api.h"
#include "fs/mounter/erofs_mount.h"
#include "fs/mounter/message.h"

namespace varve::fs::mounter {
namespace {

class Helper {
 public:
  explicit Helper(const MounterOptions& options) : options_(options) {}

  Status set_up();
  bool uses_loop_devices() const { return uses_loop_devices_; }
  /// Answers a request for a mount of `key`, in `answer`.
  Status mount(int mount_root_fd, const std::string& key, Message& answer);
  Status drop(const std::string& key);

 private:
  Result<UniqueFd> make_mount(int layer_fd);
  Result<UniqueFd> make_loop_mount(int layer_fd);

  const MounterOptions options_;
  UniqueFd dev_fd_;
  bool uses_loop_devices_ = false;
  std::map<std::string, std::string> mounts_;  // Key to path.
  uint64_t next_number_ = 0;
};

// A private mount namespace with nothing in it but a small tmpfs, so that no mount of the host is
// held. The one pivot_root of the daemon's life.
Status Helper::set_up() {
  auto dev = open_file("/dev", O_PATH | O_DIRECTORY);
  if (!dev) return fail(std::move(dev).error(), "opening /dev");
  dev_fd_ = std::move(*dev);
  VARVE_TRY(unshare_mounts());
  const char* scratch = options_.scratch_directory.c_str();
  if (::mount("varvefs-mounts", scratch, "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC,
              "size=1m,nr_inodes=20000,mode=0700")) {
    return fail_errno("mounting a tmpfs");
  }
  if (chdir(scratch) || syscall(SYS_pivot_root, ".", ".") || umount2(".", MNT_DETACH) ||
      chdir("/")) {
    return fail_errno("changing the root");
  }
  uses_loop_devices_ = options_.loop_only || !can_mount_files("/probe");
  return {};
}

Result<UniqueFd> Helper::make_mount(int layer_fd) {
  if (fchdir(layer_fd)) return fail_errno("entering the layer's directory");
  if (!uses_loop_devices_) {
    auto mounted = make_erofs_mount("image.erofs", true);
    // What holds for a file of the probe's filesystem may not hold for this one.
    if (mounted || mounted.error().errno_value() != ENOTBLK) return mounted;
  }
  return make_loop_mount(layer_fd);
}

Result<UniqueFd> Helper::make_loop_mount(int layer_fd) {
  VARVE_ASSIGN(const UniqueFd image, open_file_at(layer_fd, "image.erofs", O_RDONLY));
  VARVE_ASSIGN(const LoopDevice device, make_loop_device(dev_fd_.get(), image.get()));
  if (fchdir(dev_fd_.get())) return fail_errno("entering /dev");
  return make_erofs_mount(device.name, false);
}

Status Helper::mount(int mount_root_fd, const std::string& key, Message& answer) {
  if (const auto found = mounts_.find(key); found != mounts_.end()) {
    VARVE_ASSIGN(answer.fd, clone_mount(AT_FDCWD, found->second));
    return {};
  }
  VARVE_ASSIGN(const UniqueFd layer,
               open_file_at(mount_root_fd, key, O_PATH | O_DIRECTORY | O_NOFOLLOW));
  auto mounted = make_mount(layer.get());
  if (chdir("/")) return fail_errno("leaving the layer's directory");
  if (!mounted) return tl::unexpected(std::move(mounted).error());
  if (!options_.attached_only && clone_mount(mounted->get(), "")) {
    answer.operation = kOriginal;
    answer.fd = std::move(*mounted);
    return {};
  }
  const std::string path = "/" + std::to_string(next_number_++);
  if (mkdir(path.c_str(), 0700)) return fail_errno("mkdir");
  Status attached = move_mount_to(mounted->get(), AT_FDCWD, path);
  if (!attached) {
    rmdir(path.c_str());
    return tl::unexpected(std::move(attached).error());
  }
  mounts_.emplace(key, path);
  VARVE_ASSIGN(answer.fd, clone_mount(AT_FDCWD, path));
  return {};
}

Status Helper::drop(const std::string& key) {
  const auto found = mounts_.find(key);
  if (found == mounts_.end()) return {};
  const std::string path = found->second;
  mounts_.erase(found);
  if (umount2(path.c_str(), MNT_DETACH)) return fail_errno("umount");
  if (rmdir(path.c_str())) return fail_errno("rmdir");
  return {};
}

// Only the socket stays open: above all not /dev/fuse, and nothing that whoever started the daemon
// waits for the end of.
void close_other_descriptors(int socket) {
  if (const UniqueFd null(open("/dev/null", O_RDWR | O_CLOEXEC)); null) {
    for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) dup2(null.get(), fd);
  }
  if (socket > 3) close_range(3, static_cast<unsigned>(socket) - 1, 0);
  close_range(static_cast<unsigned>(socket) + 1, ~0U, 0);
}

Message answer_to(Helper& helper, const Message& request) {
  Message answer;
  answer.sequence = request.sequence;
  answer.operation = request.operation;
  Status status = request.operation == kMount ? helper.mount(request.fd.get(), request.text, answer)
                                              : helper.drop(request.text);
  if (!status) {
    answer.error = status.error().code();
    answer.text = status.error().to_string();
  }
  return answer;
}

}  // namespace

int run_helper(int socket, const MounterOptions& options) {
  prctl(PR_SET_NAME, "varvefs-mounter");
  // The daemon's terminal and service manager talk to the daemon; its end ends the helper.
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) signal(number, SIG_IGN);
  close_other_descriptors(socket);
  Helper helper(options);
  Status set_up = helper.set_up();
  Message ready;
  ready.operation = helper.uses_loop_devices() ? kLoops : 0;
  if (!set_up) {
    ready.error = set_up.error().code();
    ready.text = set_up.error().to_string();
  }
  if (!send_message(socket, ready) || !set_up) return 1;
  for (;;) {
    auto request = receive_message(socket);
    if (!request) return 0;
    if (!send_message(socket, answer_to(helper, *request))) return 0;
  }
}

}  // namespace varve::fs::mounter
