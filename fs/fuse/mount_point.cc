#include "fs/fuse/mount_point.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/statfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <sstream>
#include <vector>

#include "base/file_io.h"

namespace varve::fs {
namespace {

constexpr const char* kType = "fuse.varvefs";
constexpr size_t kMountinfoBytesMax = 64 << 20;

Result<UniqueFd> open_fuse() {
  auto fd = open_file("/dev/fuse", O_RDWR);
  if (fd) return fd;
  const int error = fd.error().errno_value();
  if (error != ENOENT && error != ENODEV && error != ENXIO) return fd;
  return fail(ErrorCode::kUnsupported,
              "no FUSE: the module 'fuse' is not there, or a container "
              "lacks the device: " +
                  fd.error().to_string());
}

Result<UniqueFd> mount_as_root(const std::string& path) {
  VARVE_ASSIGN(UniqueFd fd, open_fuse());
  const std::string options =
      "fd=" + std::to_string(fd.get()) +
      ",rootmode=40000,user_id=0,group_id=0,allow_other,default_permissions";
  // No MS_NODEV: /dev/null must work below tree/ inside a chroot. Set-user-id programs of images
  // must not work on the host.
  if (mount("varvefs", path.c_str(), kType, MS_RDONLY | MS_NOSUID | MS_NOATIME, options.c_str())) {
    return fail_errno("mounting at '" + path + "'");
  }
  return fd;
}

Result<UniqueFd> receive_fd(int socket) {
  char byte;
  iovec part{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  ssize_t size;
  do {
    size = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  } while (size < 0 && errno == EINTR);
  if (size < 0) return fail_errno("receiving from fusermount3");
  const cmsghdr* header = size == 0 ? nullptr : CMSG_FIRSTHDR(&message);
  if (header == nullptr || header->cmsg_type != SCM_RIGHTS) {
    return fail(ErrorCode::kPermission, "fusermount3 sent no descriptor");
  }
  int fd;
  std::memcpy(&fd, CMSG_DATA(header), sizeof(fd));
  return UniqueFd(fd);
}

struct HelperEnd {
  int status;        // 128 when a signal ended it.
  std::string text;  // The last thing that it said, "" when it was quiet.
};

std::string last_line_of(int pipe) {
  char buffer[4096];
  const ssize_t size = read(pipe, buffer, sizeof(buffer));
  std::string_view text(buffer, size > 0 ? static_cast<size_t>(size) : 0);
  while (text.ends_with('\n')) text.remove_suffix(1);
  const size_t newline = text.rfind('\n');
  return std::string(newline == std::string_view::npos ? text : text.substr(newline + 1));
}

// Runs fusermount3 to its end.
Result<HelperEnd> run_fusermount(std::vector<std::string> arguments, int inherited_fd) {
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  std::string comm_fd = "_FUSE_COMMFD=" + std::to_string(inherited_fd);
  std::vector<char*> environment = {comm_fd.data()};
  for (char** variable = environ; *variable != nullptr; ++variable) {
    environment.push_back(*variable);
  }
  environment.push_back(nullptr);
  // What it says fits into a pipe, so it is read when all is over.
  int ends[2];
  if (pipe2(ends, O_CLOEXEC | O_NONBLOCK)) return fail_errno("pipe");
  const UniqueFd read_end(ends[0]);
  const UniqueFd write_end(ends[1]);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, write_end.get(), STDERR_FILENO);
  pid_t pid;
  const int error =
      posix_spawnp(&pid, "fusermount3", &actions, nullptr, argv.data(), environment.data());
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) return fail_errno(error, "starting fusermount3, which mounts for users");
  int status = 0;
  while (waitpid(pid, &status, 0) < 0) {
    if (errno != EINTR) return fail_errno("waiting for fusermount3");
  }
  return HelperEnd{WIFEXITED(status) ? WEXITSTATUS(status) : 128, last_line_of(read_end.get())};
}

// The protocol of fusermount3(1): it sends the descriptor over the socket named by _FUSE_COMMFD.
Result<UniqueFd> mount_by_helper(const std::string& path) {
  int sockets[2];
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, sockets)) return fail_errno("socketpair");
  UniqueFd ours(sockets[0]);
  UniqueFd theirs(sockets[1]);
  if (fcntl(ours.get(), F_SETFD, FD_CLOEXEC) < 0) return fail_errno("fcntl");
  VARVE_ASSIGN(
      const HelperEnd end,
      run_fusermount({"fusermount3", "-o",
                      "ro,nosuid,default_permissions,fsname=varvefs,subtype=varvefs", "--", path},
                     theirs.get()));
  theirs.reset();
  if (end.status != 0) {
    return fail(ErrorCode::kPermission,
                end.text.empty() ? "fusermount3 ended with status " + std::to_string(end.status)
                                 : end.text);
  }
  return receive_fd(ours.get());
}

// Detaches at once, in use or not.
Status detach_by_helper(const std::string& path) {
  VARVE_ASSIGN(const HelperEnd end, run_fusermount({"fusermount3", "-u", "-z", "--", path}, -1));
  if (end.status != 0) {
    return fail(ErrorCode::kBusy, "unmounting '" + path + "': " + end.text);
  }
  return {};
}

// Where this process may not look, the kernel answers by itself, and with zeros.
bool is_served(const std::string& path) {
  struct statfs status;
  return statfs(path.c_str(), &status) == 0 && status.f_bsize != 0;
}

// mountinfo(5) writes space, tab, newline and backslash as \ooo.
std::string unescape_octal(std::string_view text) {
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 3 < text.size()) {
      result += static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 +
                                  (text[i + 3] - '0'));
      i += 3;
    } else {
      result += text[i];
    }
  }
  return result;
}

}  // namespace

MountPoint::MountPoint(std::string path, UniqueFd parent_fd, UniqueFd fuse_fd, bool by_helper)
    : path_(std::move(path)),
      parent_fd_(std::move(parent_fd)),
      fuse_fd_(std::move(fuse_fd)),
      by_helper_(by_helper) {}

MountPoint::MountPoint(MountPoint&& other) noexcept
    : path_(std::move(other.path_)),
      parent_fd_(std::move(other.parent_fd_)),
      fuse_fd_(std::move(other.fuse_fd_)),
      by_helper_(other.by_helper_),
      is_mounted_(std::exchange(other.is_mounted_, false)) {}

MountPoint::~MountPoint() {
  static_cast<void>(unmount());
}

Result<MountPoint> MountPoint::create(const std::string& path) {
  const bool is_root = geteuid() == 0;
  VARVE_ASSIGN(UniqueFd parent,
               open_file(path.substr(0, path.rfind('/') + 1), O_PATH | O_DIRECTORY));
  VARVE_ASSIGN(UniqueFd fd, is_root ? mount_as_root(path) : mount_by_helper(path));
  return MountPoint(path, std::move(parent), std::move(fd), !is_root);
}

// Its path, also after a directory above it was renamed. Without /proc that is not known.
std::string MountPoint::place() const {
  char parent[PATH_MAX];
  const std::string link = "/proc/self/fd/" + std::to_string(parent_fd_.get());
  const ssize_t size = readlink(link.c_str(), parent, sizeof(parent));
  if (size <= 1) return path_;
  return std::string(parent, static_cast<size_t>(size)) + path_.substr(path_.rfind('/'));
}

Status MountPoint::set_readahead_kb(int readahead_kb) const {
  if (by_helper_) return {};
  VARVE_ASSIGN(const MountedAt mounted, find_mount(path_));
  const std::string file = "/sys/class/bdi/" + mounted.device + "/read_ahead_kb";
  VARVE_ASSIGN(const UniqueFd fd, open_file(file, O_WRONLY));
  return write_all(fd.get(), as_bytes(std::to_string(readahead_kb)));
}

Status MountPoint::unmount() {
  if (!std::exchange(is_mounted_, false)) return {};
  if (by_helper_) return detach_by_helper(place());
  // Somebody else may have unmounted it, and removed the directory.
  if (umount2(place().c_str(), MNT_DETACH | UMOUNT_NOFOLLOW) && errno != EINVAL &&
      errno != ENOENT) {
    return fail_errno("unmounting '" + path_ + "'");
  }
  return {};
}

bool MountPoint::is_in_use() const {
  if (by_helper_) return false;
  // The first call only marks an unused mount as expired. A second one would unmount it, had it not
  // been used in between.
  { const UniqueFd use(open(place().c_str(), O_PATH | O_CLOEXEC)); }
  return umount2(place().c_str(), MNT_EXPIRE | UMOUNT_NOFOLLOW) != 0 && errno == EBUSY;
}

Result<bool> MountPoint::unmount_if_unused() {
  if (by_helper_) {
    VARVE_ASSIGN(const HelperEnd end,
                 run_fusermount({"fusermount3", "-u", "-q", "--", place()}, -1));
    is_mounted_ = end.status != 0;
  } else if (umount2(place().c_str(), UMOUNT_NOFOLLOW) == 0) {
    is_mounted_ = false;
  } else if (errno != EBUSY && errno != EINVAL && errno != ENOENT) {
    return fail_errno("unmounting '" + path_ + "'");
  }
  return !is_mounted_;
}

std::string resolved_mount_point(const std::string& path) {
  char resolved[PATH_MAX];
  if (realpath(path.c_str(), resolved) != nullptr) return resolved;
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos || slash == 0) return path;
  const std::string parent = resolved_mount_point(path.substr(0, slash));
  return (parent == "/" ? "" : parent) + path.substr(slash);
}

Result<MountedAt> find_mount(const std::string& path) {
  VARVE_ASSIGN(const Bytes text, read_file("/proc/self/mountinfo", kMountinfoBytesMax));
  std::istringstream lines{std::string(as_text(text))};
  std::optional<MountedAt> found;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream fields(line);
    std::string id, parent, device, root, mount_point, word;
    fields >> id >> parent >> device >> root >> mount_point;
    if (unescape_octal(mount_point) != path) continue;
    while (fields >> word && word != "-") {
    }
    std::string type;
    fields >> type;
    found = MountedAt{device, type};
  }
  if (!found) return fail(ErrorCode::kNotFound, "nothing is mounted at '" + path + "'");
  return *found;
}

Status remove_stale_mounts(const std::string& path) {
  for (;;) {
    auto mounted = find_mount(path);
    if (!mounted) {
      if (mounted.error().code() == ErrorCode::kNotFound) return {};
      return tl::unexpected(std::move(mounted).error());
    }
    if (mounted->type != kType) {
      return fail(ErrorCode::kBusy, "'" + path + "' is a mount point of type " + mounted->type);
    }
    if (is_served(path)) {
      return fail(ErrorCode::kBusy, "another varvefs has the mount point '" + path + "'");
    }
    if (geteuid() != 0) {
      VARVE_TRY(detach_by_helper(path));
    } else if (umount2(path.c_str(), MNT_DETACH | UMOUNT_NOFOLLOW)) {
      return fail_errno("unmounting what an earlier varvefs left at '" + path + "'");
    }
  }
}

}  // namespace varve::fs
