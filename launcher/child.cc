#include "launcher/child.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <linux/sched.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/check.h"
#include "guard/capabilities.h"
#include "guard/seccomp_filter.h"
#include "launcher/child_protocol.h"
#include "launcher/empty_namespace.h"
#include "launcher/fd_message.h"
#include "launcher/init.h"

namespace varve::launcher {
namespace {

/// The state of the operations: descriptors by register. Everything opened here is CLOEXEC and
/// closed at once by PID 1's close_range, so nothing is closed one by one.
struct ChildState {
  ChildContext& context;
  std::array<int, static_cast<size_t>(Register::kCount)> fds{};  ///< 0: holds nothing.
  std::array<int, kMessageFdsMax> joins{};                       ///< `tasks` of the groups to join.
  size_t join_count = 0;
  int cover = -1;  ///< Root of the empty namespace, below the sandbox's own.
  int terminal = -1;
  MountsMessage identity;

  int& fd(Register r) { return fds[static_cast<size_t>(r)]; }
};

int errno_if(bool failed) {
  return failed ? errno : 0;
}

int wait_for_id_maps(ChildState& state) {
  IdMapsMessage go;
  state.join_count = state.joins.size();
  return receive_message(state.context.control, &go, sizeof go, state.joins.data(),
                         &state.join_count);
}

int join_cgroup(ChildState& state) {
  for (size_t i = 0; i < state.join_count; ++i) {
    if (::write(state.joins[i], "0", 1) != 1) return errno;
  }
  return 0;
}

int become_root() {
  return errno_if(::syscall(SYS_setresgid, 0, 0, 0) != 0 ||
                  ::syscall(SYS_setresuid, 0, 0, 0) != 0 ||
                  ::syscall(SYS_setgroups, 0, nullptr) != 0);
}

int loopback_up() {
  const int socket = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (socket < 0) return errno;
  ifreq request{};
  std::memcpy(request.ifr_name, "lo", sizeof "lo");
  request.ifr_flags = IFF_UP | IFF_RUNNING;
  return errno_if(::ioctl(socket, SIOCSIFFLAGS, &request) != 0);
}

int new_filesystem(ChildState& state, const Operation& operation) {
  const int context = ::fsopen(operation.path.c_str(), FSOPEN_CLOEXEC);
  if (context < 0) return errno;
  for (const auto& [name, value] : operation.options) {
    if (::fsconfig(context, FSCONFIG_SET_STRING, name.c_str(), value.c_str(), 0) != 0) return errno;
  }
  if (::fsconfig(context, FSCONFIG_CMD_CREATE, nullptr, nullptr, 0) != 0) return errno;
  const int fd = ::fsmount(context, FSMOUNT_CLOEXEC, static_cast<unsigned>(operation.value));
  state.fd(operation.target) = fd;
  return errno_if(fd < 0);
}

/// The word at `text`, which goes on to the next one.
char* take_word(char*& text) {
  char* word = text;
  text += std::strlen(text) + 1;
  return word;
}

/// `count` words from `text` on, and a null pointer behind them.
void lay_out(char**& pointers, char*& text, uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) *pointers++ = take_word(text);
  *pointers++ = nullptr;
}

int receive_texts(ChildState& state) {
  ChildContext& context = state.context;
  const MountsMessage& message = state.identity;
  // A null pointer behind each list, and HOME.
  const size_t pointer_count =
      size_t{message.argument_count} + message.variable_count + message.candidate_count + 4;
  const size_t size = pointer_count * sizeof(char*) + message.text_bytes;
  void* memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return errno;
  auto* pointers = static_cast<char**>(memory);
  char* text = reinterpret_cast<char*>(pointers + pointer_count);
  for (uint64_t at = 0; at < message.text_bytes;) {
    const uint64_t n = std::min<uint64_t>(message.text_bytes - at, message.kTextBytesPerMessage);
    if (const int error = receive_message(context.control, text + at, n, nullptr, nullptr)) {
      return error;
    }
    at += n;
  }
  context.hostname = take_word(text);
  context.workdir = take_word(text);
  context.argv = pointers;
  lay_out(pointers, text, message.argument_count);
  context.env = pointers;
  lay_out(pointers, text, message.variable_count);
  if (message.set_home) {
    std::memcpy(context.home + 5, message.home, sizeof message.home);
    context.home[sizeof context.home - 1] = '\0';
    pointers[-1] = context.home;
    *pointers++ = nullptr;
  }
  context.candidates = pointers;
  lay_out(pointers, text, message.candidate_count);
  return 0;
}

int receive_mounts(ChildState& state) {
  int fds[kMessageFdsMax];
  size_t count = kMessageFdsMax;
  if (const int error = receive_message(state.context.control, &state.identity,
                                        sizeof state.identity, fds, &count)) {
    return error;
  }
  if (count < 2) return EPROTO;
  state.fd(Register::kRoot) = fds[0];
  state.fd(Register::kDev) = fds[1];
  if (count > 2) state.fd(Register::kEtc) = fds[2];
  return receive_texts(state);
}

/// The overlay over the empty root, and chroot into it. pivot_root would walk every task of the
/// host; leaving this root by chdir("..") ends in the overlay again, which lies over the other.
int switch_root(ChildState& state) {
  const int root = state.fd(Register::kRoot);
  return errno_if(::move_mount(root, "", AT_FDCWD, "/", MOVE_MOUNT_F_EMPTY_PATH) != 0 ||
                  ::fchdir(root) != 0 || ::chroot(".") != 0);
}

int open_at(int directory, const char* path, uint64_t flags, uint64_t resolve) {
  open_how how{};
  how.flags = flags | O_CLOEXEC;
  how.resolve = resolve;
  return static_cast<int>(::syscall(SYS_openat2, directory, path, &how, sizeof how));
}

/// Opens a path of the image, which may try to lead elsewhere: symlinks are refused.
int open_in_root(int root, const char* path, uint64_t flags) {
  return open_at(root, path, flags, RESOLVE_IN_ROOT | RESOLVE_NO_SYMLINKS);
}

int attach_fd(ChildState& state, int mount, const char* path) {
  const int root = state.fd(Register::kRoot);
  int directory = open_in_root(root, path, O_PATH | O_DIRECTORY);
  if (directory < 0 && errno == ENOENT) {
    if (::mkdirat(root, path, 0755) != 0) return errno;
    directory = open_in_root(root, path, O_PATH | O_DIRECTORY);
  }
  if (directory < 0) return errno;
  return errno_if(::move_mount(mount, "", directory, "",
                               MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) != 0);
}

int attach_file(ChildState& state, const Operation& operation) {
  if (state.fd(operation.target) == 0) return 0;
  // Links of the image lead to places in the image; those of /proc could lead out of it.
  const size_t slash = operation.path.rfind('/');
  char parent_path[256];
  if (slash == std::string::npos || slash >= sizeof parent_path) return EINVAL;
  std::memcpy(parent_path, operation.path.c_str(), slash);
  parent_path[slash] = '\0';
  const char* name = operation.path.c_str() + slash + 1;
  const int parent = open_at(state.fd(Register::kRoot), parent_path, O_PATH | O_DIRECTORY,
                             RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS);
  // An image without the directory has no use for the file.
  if (parent < 0) return errno == ENOENT ? 0 : errno;
  int file = open_at(parent, name, O_PATH, RESOLVE_NO_SYMLINKS);
  // A link that the image's own resolver daemon would have filled is replaced.
  if (file < 0 && errno == ELOOP && ::unlinkat(parent, name, 0) != 0) return errno;
  if (file < 0) {
    file = ::openat(parent, name, O_RDONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (file < 0) return errno;
  }
  return errno_if(::move_mount(state.fd(operation.target), "", file, "",
                               MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) != 0);
}

/// Masks pass over what is missing, and so would they if it were what they cover with.
int stage_proc(ChildState& state) {
  state.cover = ::open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
  return errno_if(state.cover < 0 || ::faccessat(state.cover, kEmptyFileName, F_OK, 0) != 0 ||
                  ::faccessat(state.cover, kEmptyDirectoryName, F_OK, 0) != 0 ||
                  ::move_mount(state.fd(Register::kProc), "", state.cover, "proc",
                               MOVE_MOUNT_F_EMPTY_PATH) != 0 ||
                  ::fchdir(state.cover) != 0);
}

int mask(const Operation& operation) {
  constexpr char kProcPrefix[] = "proc/";
  char target[256];
  if (sizeof kProcPrefix + operation.path.size() > sizeof target) return ENAMETOOLONG;
  std::memcpy(target, kProcPrefix, sizeof kProcPrefix);
  std::memcpy(target + sizeof kProcPrefix - 1, operation.path.c_str(), operation.path.size() + 1);
  const char* source = operation.kind == OpKind::kMaskFile ? kEmptyFileName : kEmptyDirectoryName;
  if (::mount(source, target, nullptr, MS_BIND, nullptr) == 0 || errno == ENOENT) return 0;
  return errno;
}

int make_read_only(ChildState& state, const Operation& operation) {
  const int proc = state.fd(Register::kProc);
  const int tree = ::open_tree(proc, operation.path.c_str(), OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
  if (tree < 0) return errno;
  mount_attr attributes{};
  attributes.attr_set = MOUNT_ATTR_RDONLY;
  return errno_if(::mount_setattr(tree, "", AT_EMPTY_PATH, &attributes, sizeof attributes) != 0 ||
                  ::move_mount(tree, "", proc, operation.path.c_str(), MOVE_MOUNT_F_EMPTY_PATH) !=
                      0);
}

int attach_shm(ChildState& state, const Operation& operation) {
  const int dev = state.fd(Register::kDev);
  const char* name = operation.path.c_str();
  const int tree = ::open_tree(dev, name, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
  if (tree < 0) return errno;
  mount_attr attributes{};
  attributes.attr_set = operation.value;
  return errno_if(::mount_setattr(tree, "", AT_EMPTY_PATH, &attributes, sizeof attributes) != 0 ||
                  ::move_mount(tree, "", dev, name, MOVE_MOUNT_F_EMPTY_PATH) != 0);
}

int attach_sys(ChildState& state, const Operation& operation) {
  const int tree =
      ::open_tree(state.cover, kSysfsName, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE);
  if (tree < 0) return errno;
  return attach_fd(state, tree, operation.path.c_str());
}

/// Closes what was inherited from the host's side, directories of the host among it: the image may
/// name /proc/self/fd/N or have links that lead there. Also the registers, which are not needed any
/// more.
int close_all_but_streams_and(int control) {
  const auto kept = static_cast<unsigned>(control);
  if (kept > 3 && ::syscall(SYS_close_range, 3, kept - 1, 0) != 0) return errno;
  return errno_if(::syscall(SYS_close_range, kept + 1, ~0U, 0) != 0);
}

/// chdir, after mkdir -p where the image lacks the directory.
int make_and_enter(const char* path) {
  if (::chdir(path) == 0) return 0;
  if (errno != ENOENT) return errno;
  char prefix[4096];
  const size_t size = std::strlen(path);
  if (size >= sizeof prefix) return ENAMETOOLONG;
  for (size_t i = 1; i <= size; ++i) {
    if (i != size && path[i] != '/') continue;
    std::memcpy(prefix, path, i);
    prefix[i] = '\0';
    if (::mkdir(prefix, 0755) != 0 && errno != EEXIST) return errno;
  }
  return errno_if(::chdir(path) != 0);
}

int enter_workdir(ChildState& state) {
  if (const int error = close_all_but_streams_and(state.context.control)) return error;
  if (const int error = make_and_enter(state.context.workdir)) return error;
  // A standard stream may be a directory of the host, too. The kernel writes "(unreachable)" before
  // the path of what is not below the root.
  char path[4096];
  if (::syscall(SYS_getcwd, path, sizeof path) < 0) return errno;
  return path[0] == '/' ? 0 : EACCES;
}

int make_terminal(ChildState& state) {
  const int master = ::open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);
  if (master < 0) return errno;
  const int unlocked = 0;
  if (::ioctl(master, TIOCSPTLCK, &unlocked) != 0) return errno;
  state.terminal = ::ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
  if (state.terminal < 0) return errno;
  if (::ioctl(master, TIOCSWINSZ, &state.context.window) != 0) return errno;
  // The command's user must be able to open its own /dev/pts entry.
  if (::fchown(state.terminal, state.identity.uid, static_cast<gid_t>(-1)) != 0) return errno;
  const Report report{.kind = ReportKind::kTerminal};
  return send_message(state.context.control, &report, sizeof report, {&master, 1});
}

int set_limit_to_zero(const Operation& operation) {
  const rlimit zero{0, 0};
  return errno_if(::setrlimit(static_cast<__rlimit_resource_t>(operation.value), &zero) != 0);
}

int run_operation(ChildState& state, const Operation& operation) {
  switch (operation.kind) {
    case OpKind::kWaitForIdMaps:
      return wait_for_id_maps(state);
    case OpKind::kJoinCgroup:
      return join_cgroup(state);
    case OpKind::kBecomeRoot:
      return become_root();
    case OpKind::kNamespaces:
      return errno_if(::unshare(static_cast<int>(operation.value)) != 0);
    case OpKind::kHostname:
      return errno_if(::sethostname(state.context.hostname, std::strlen(state.context.hostname)) !=
                      0);
    case OpKind::kLoopbackUp:
      return loopback_up();
    case OpKind::kNewFilesystem:
      return new_filesystem(state, operation);
    case OpKind::kStageProc:
      return stage_proc(state);
    case OpKind::kReceiveMounts:
      return receive_mounts(state);
    case OpKind::kSwitchRoot:
      return switch_root(state);
    case OpKind::kAttach:
      return attach_fd(state, state.fd(operation.target), operation.path.c_str());
    case OpKind::kAttachFile:
      return attach_file(state, operation);
    case OpKind::kMaskFile:
    case OpKind::kMaskDirectory:
      return mask(operation);
    case OpKind::kReadOnly:
      return make_read_only(state, operation);
    case OpKind::kAttachShm:
      return attach_shm(state, operation);
    case OpKind::kAttachSys:
      return attach_sys(state, operation);
    case OpKind::kWorkdir:
      return enter_workdir(state);
    case OpKind::kTerminal:
      return make_terminal(state);
    case OpKind::kLimit:
      return set_limit_to_zero(operation);
    case OpKind::kNoNewPrivileges:
      return errno_if(::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0);
    case OpKind::kSeccomp:
      return guard::install_seccomp_filter();
    case OpKind::kCapabilities:
      return guard::keep_only_capabilities(operation.value);
    default:
      return ENOSYS;  // Of the host's side.
  }
}

}  // namespace

void run_child(ChildContext& context) {
  ::umask(022);
  ChildState state{.context = context};
  const std::vector<Operation>& operations = context.operations;
  for (size_t i = 0; i < operations.size(); ++i) {
    if (const int error = run_operation(state, operations[i])) {
      const Report report{.kind = ReportKind::kSetupFailed,
                          .errno_value = error,
                          .operation = static_cast<uint32_t>(i)};
      (void)send_message(context.control, &report, sizeof report, {});
      ::_exit(1);
    }
  }
  run_init(context, state.identity, state.terminal);
}

}  // namespace varve::launcher
