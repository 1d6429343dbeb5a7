#include "launcher/host_side.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <linux/sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/file_io.h"
#include "base/mount_api.h"
#include "launcher/empty_namespace.h"
#include "launcher/fd_message.h"
#include "launcher/overlay.h"
#include "launcher/slot.h"
#include "launcher/user_database.h"

namespace varve::launcher {
namespace {

Status give_to(int directory, const char* name, uint32_t uid, uint32_t gid) {
  if (::fchownat(directory, name, uid, gid, AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH) != 0) {
    return fail_errno("changing the owner of " + quoted(name));
  }
  return {};
}

}  // namespace

Status SandboxStart::open_upper(const Operation& operation) {
  if (inputs_.upper_directory >= 0) {
    VARVE_ASSIGN(upper_, clone_mount(inputs_.upper_directory, ""));
    return {};
  }
  VARVE_ASSIGN(upper_, new_mount("tmpfs", operation.options, 0));
  return make_upper_and_work(upper_.get());
}

Status SandboxStart::clone_child(const Operation& operation) {
  int sockets[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) != 0) {
    return fail_errno("creating a socket pair");
  }
  control_.reset(sockets[0]);
  child_control_.reset(sockets[1]);
  int pidfd = -1;
  clone_args arguments{};
  arguments.flags = operation.value | CLONE_PIDFD;
  arguments.pidfd = reinterpret_cast<uint64_t>(&pidfd);
  arguments.exit_signal = SIGCHLD;
  if (inputs_.cgroup_into >= 0) {
    arguments.flags |= CLONE_INTO_CGROUP;
    arguments.cgroup = static_cast<uint64_t>(inputs_.cgroup_into);
  }
  // The child is born with every signal blocked: one that comes before it could block them itself
  // would be lost, as PID 1 ignores what it has no handler for.
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::sigprocmask(SIG_SETMASK, &all, &before);
  const long pid = ::syscall(SYS_clone3, &arguments, sizeof arguments);
  const int clone_errno = errno;
  if (pid != 0) ::sigprocmask(SIG_SETMASK, &before, nullptr);
  if (pid < 0) return fail_errno(clone_errno, "clone3");
  if (pid == 0) {
    // The parent's end must close when the parent dies.
    ::close(control_.get());
    // Whoever closes the last descriptor of a detached mount waits for a grace period: not the
    // child.
    ::close(upper_.get());
    context_.control = child_control_.get();
    run_child(context_);
  }
  child_ = Child(static_cast<pid_t>(pid), UniqueFd(pidfd));
  child_control_.reset();
  return {};
}

/// Before the child changes its user. What may raise it from 0 is on this side alone, too: many
/// hosts have that for a hard limit.
Status SandboxStart::limit_cores(uint64_t bytes) {
  const uint64_t limit[2] = {bytes, bytes};
  if (::syscall(SYS_prlimit64, child_.pid(), RLIMIT_CORE, limit, nullptr) == 0) return {};
  // A root without CAP_SYS_RESOURCE: it stays 0.
  if (errno == EPERM) return {};
  return fail_errno("prlimit");
}

Status SandboxStart::clone_host_file(const Operation& operation) {
  auto clone = clone_mount(AT_FDCWD, operation.path);
  // A host without one has nothing to lend.
  if (!clone && clone.error().errno_value() == ENOENT) return {};
  if (!clone) return tl::unexpected<Error>(std::move(clone).error());
  etc_ = std::move(*clone);
  mount_attr attributes{};
  attributes.attr_set =
      MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC;
  return set_mount_attributes(etc_.get(), attributes);
}

Status SandboxStart::write_id_maps() {
  const std::string text = id_map_text(plan_.id_map);
  const std::string directory = "/proc/" + std::to_string(child_.pid());
  for (const char* file : {"/uid_map", "/gid_map"}) {
    VARVE_ASSIGN(const UniqueFd fd, open_file(directory + file, O_WRONLY));
    if (::write(fd.get(), text.data(), text.size()) < 0)
      return fail_errno("writing " + quoted(text));
  }
  VARVE_ASSIGN(user_namespace_, open_file(directory + "/ns/user", O_RDONLY));
  const IdMapsMessage go;
  if (const int error = send_message(control_.get(), &go, sizeof go, joins_)) {
    return fail_errno(error, "telling the child");
  }
  return {};
}

Status SandboxStart::mount_overlay(const Operation& operation) {
  VARVE_ASSIGN(root_, launcher::mount_overlay({.lowers = lowers_,
                                               .upper = upper_.get(),
                                               .options = operation.options,
                                               .attributes = MOUNT_ATTR_NODEV,
                                               .mounter_id = plan_.id_map.front().outside}));
  return {};
}

Status SandboxStart::idmap_lower(const Operation& operation) {
  auto status = idmap_mount(lowers_[operation.value].get(), user_namespace_.get());
  if (status || status.error().errno_value() != EINVAL) return status;
  return fail(std::move(status).error(), "EROFS takes id maps from Linux 5.19 on");
}

/// Where the upper directory's filesystem takes no id map, its files have the sandbox's host ids:
/// the same to those inside, of no use to anybody afterwards.
Status SandboxStart::idmap_upper(const Operation& operation) {
  auto status = idmap_mount(upper_.get(), user_namespace_.get());
  if (status || status.error().errno_value() != EINVAL) return status;
  const bool is_kept = operation.value != 0;
  if (is_kept) {
    return fail(std::move(status).error(),
                "keeping written files, on a filesystem that takes no id map (tmpfs does from "
                "Linux 6.3 on; choose another --state-dir)");
  }
  constexpr uint32_t kUnchanged = ~uint32_t{0};
  const std::optional<uint32_t> uid = outside_id(plan_.id_map, image_root_.st_uid);
  const std::optional<uint32_t> gid = outside_id(plan_.id_map, image_root_.st_gid);
  VARVE_TRY(give_to(upper_.get(), "upper", uid.value_or(kUnchanged), gid.value_or(kUnchanged)));
  const uint32_t root_id = *outside_id(plan_.id_map, 0);
  return give_to(upper_.get(), "work", root_id, root_id);
}

Status SandboxStart::make_dev(const Operation& operation) {
  VARVE_ASSIGN(dev_, new_mount("tmpfs", operation.options, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC));
  const int dev = dev_.get();
  const mode_t old_mask = ::umask(0);
  static constexpr struct {
    const char* name;
    unsigned minor_number;
    unsigned major_number = 1;
  } kNodes[] = {{"null", 3},   {"zero", 5},    {"full", 7},
                {"random", 8}, {"urandom", 9}, {"tty", 0, 5}};
  for (const auto& node : kNodes) {
    if (::mknodat(dev, node.name, S_IFCHR | 0666, makedev(node.major_number, node.minor_number)) !=
        0) {
      return fail_errno("creating " + quoted(node.name));
    }
  }
  static constexpr struct {
    const char* name;
    const char* target;
  } kLinks[] = {{"ptmx", "pts/ptmx"},
                {"fd", "/proc/self/fd"},
                {"stdin", "/proc/self/fd/0"},
                {"stdout", "/proc/self/fd/1"},
                {"stderr", "/proc/self/fd/2"}};
  for (const auto& link : kLinks) {
    if (::symlinkat(link.target, dev, link.name) != 0)
      return fail_errno("creating " + quoted(link.name));
  }
  if (::mkdirat(dev, "pts", 0755) != 0 || ::mkdirat(dev, "shm", 01777) != 0) {
    return fail_errno("creating a directory");
  }
  ::umask(old_mask);
  auto status = idmap_mount(dev, user_namespace_.get());
  if (status || status.error().errno_value() != EINVAL) return status;
  // tmpfs takes id maps from Linux 6.3 on; before, its files get the sandbox's ids themselves.
  const uint32_t root_id = *outside_id(plan_.id_map, 0);
  for (const auto& node : kNodes) VARVE_TRY(give_to(dev, node.name, root_id, root_id));
  for (const auto& link : kLinks) VARVE_TRY(give_to(dev, link.name, root_id, root_id));
  for (const char* name : {"pts", "shm", ""}) VARVE_TRY(give_to(dev, name, root_id, root_id));
  return {};
}

Status SandboxStart::run(const Operation& operation) {
  switch (operation.kind) {
    case OpKind::kOpenUpper:
      return open_upper(operation);
    case OpKind::kCloneHostFile:
      return clone_host_file(operation);
    case OpKind::kEnterEmptyNamespace:
      return inputs_.empty_namespace ? enter_empty_namespace(inputs_.empty_namespace.get())
                                     : enter_empty_namespace();
    case OpKind::kClone:
      return clone_child(operation);
    case OpKind::kCoreLimit:
      return limit_cores(operation.value);
    case OpKind::kWriteIdMaps:
      return write_id_maps();
    case OpKind::kIdmapLower:
      return idmap_lower(operation);
    case OpKind::kIdmapUpper:
      return idmap_upper(operation);
    case OpKind::kMountOverlay:
      return mount_overlay(operation);
    case OpKind::kMakeDev:
      return make_dev(operation);
    default:
      return fail(ErrorCode::kInternal, "not an operation of the host's side");
  }
}

/// Programs open /dev/stdout and the like, which for a pipe asks the pipe's owner: it becomes the
/// sandbox's user. Anonymous pipes only; files of the caller keep their owner.
Status SandboxStart::lend_pipes(uint32_t uid) {
  const uint32_t host_uid = outside_id(plan_.id_map, uid).value_or(0);
  for (int fd = 0; fd <= 2 && host_uid != 0; ++fd) {
    struct statfs status;
    if (::fstatfs(fd, &status) != 0 || status.f_type != PIPEFS_MAGIC) continue;
    if (::fchown(fd, host_uid, static_cast<gid_t>(-1)) != 0) return fail_errno("lending a pipe");
  }
  return {};
}

namespace {

/// What MountsMessage announces: counts go into it, the result is what follows it.
std::string gather_texts(const Plan& plan, MountsMessage& message) {
  std::string texts;
  // A NUL inside a word ends it, as everywhere in an execve.
  const auto add = [&texts](const std::string& word) {
    texts.append(word.c_str(), std::strlen(word.c_str()) + 1);
  };
  add(plan.hostname);
  add(plan.process.workdir);
  const Process& process = plan.process;
  for (const auto* list : {&process.argv, &process.env, &process.candidates}) {
    for (const std::string& word : *list) add(word);
  }
  message.text_bytes = texts.size();
  message.argument_count = static_cast<uint32_t>(process.argv.size());
  message.variable_count = static_cast<uint32_t>(process.env.size());
  message.candidate_count = static_cast<uint32_t>(process.candidates.size());
  message.set_home = process.set_home;
  return texts;
}

}  // namespace

Status SandboxStart::send_mounts() {
  VARVE_ASSIGN(MountsMessage message, find_identity(root_.get(), plan_.process.user));
  VARVE_TRY(lend_pipes(message.uid));
  const std::string texts = gather_texts(plan_, message);
  int fds[3] = {root_.get(), dev_.get(), etc_.get()};
  const size_t count = etc_ ? 3 : 2;
  if (const int error = send_message(control_.get(), &message, sizeof message, {fds, count})) {
    return fail_errno(error, "handing the mounts to the child");
  }
  return send_texts(texts);
}

Status SandboxStart::send_texts(const std::string& texts) {
  for (size_t at = 0; at < texts.size(); at += MountsMessage::kTextBytesPerMessage) {
    const size_t n = std::min<size_t>(texts.size() - at, MountsMessage::kTextBytesPerMessage);
    if (const int error = send_message(control_.get(), texts.data() + at, n, {})) {
      return fail_errno(error, "handing the command to the child");
    }
  }
  return {};
}

Error SandboxStart::first_cause(Error own) {
  if (!child_) return own;
  // The child writes its report before it goes; without one, ours is the cause.
  Report report;
  char byte;
  const bool told = ::recv(control_.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0 &&
                    receive_message(control_.get(), &report, sizeof report, nullptr, nullptr) == 0;
  if (told && report.kind == ReportKind::kSetupFailed) return setup_error(plan_, report);
  return own;
}

Child& Child::operator=(Child&& other) noexcept {
  std::swap(pid_, other.pid_);
  std::swap(pidfd_, other.pidfd_);
  return *this;
}

Child::~Child() {
  if (pid_ <= 0) return;
  signal(SIGKILL);
  wait();
}

void Child::signal(int number) const {
  (void)::syscall(SYS_pidfd_send_signal, pidfd_.get(), number, nullptr, 0);
}

int Child::wait() {
  int status = 0;
  while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
  return status;
}

Status SandboxStart::run_operations() {
  for (; next_operation_ < plan_.host_operations.size(); ++next_operation_) {
    const Operation& operation = plan_.host_operations[next_operation_];
    auto status = run(operation);
    if (!status) {
      return tl::unexpected<Error>(
          first_cause(std::move(status).error().with_context(describe(operation))));
    }
  }
  return {};
}

void SandboxStart::release_mounts() {
  lowers_.clear();
  for (UniqueFd* fd : {&upper_, &etc_, &user_namespace_, &root_, &dev_, &inputs_.empty_namespace}) {
    fd->reset();
  }
}

Status SandboxStart::begin() {
  return run_operations();
}

Result<StartedSandbox> SandboxStart::finish(std::vector<UniqueFd> lowers, std::vector<int> joins) {
  lowers_ = std::move(lowers);
  joins_ = std::move(joins);
  // While neither of them is seen through the sandbox's ids.
  if (::fstat(lowers_.back().get(), &image_root_) != 0) return fail_errno("reading the image");
  VARVE_TRY(copy_root_attributes(upper_.get(), image_root_));
  VARVE_TRY(run_operations());
  auto status = send_mounts();
  if (!status) return tl::unexpected<Error>(first_cause(std::move(status).error()));
  StartedSandbox started{std::move(child_), std::move(control_)};
  release_mounts();
  return started;
}

Error setup_error(const Plan& plan, const Report& report) {
  const bool known = report.operation < plan.child_operations.size();
  return Error::from_errno(report.errno_value,
                           known ? describe(plan.child_operations[report.operation])
                                 : std::string("starting the sandbox's first process"));
}

}  // namespace varve::launcher
