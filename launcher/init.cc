#include "launcher/init.h"

#include <fcntl.h>
#include <grp.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/clock.h"
#include "launcher/fd_message.h"

namespace varve::launcher {
namespace {

constexpr int kControlFd = 3;

void report(Report message) {
  (void)send_message(kControlFd, &message, sizeof message, {});
}

/// Runs between vfork and exec, on the parent's stack: nothing of the parent is written. The libc
/// wrappers of set*id signal other threads; there are none, and raw calls skip it. A failure is
/// told to `varve run` from here, on the socket that exec closes.
[[noreturn]] void become_command(const ChildContext& context, const MountsMessage& identity,
                                 int terminal) {
  const auto give_up = [](int errno_value) {
    report({.kind = ReportKind::kExecFailed, .errno_value = errno_value});
    ::_exit(127);
  };
  ::setsid();
  if (terminal >= 0) {
    if (::ioctl(terminal, TIOCSCTTY, 0) != 0) give_up(errno);
    for (int fd = 0; fd <= 2; ++fd) {
      if (::dup2(terminal, fd) < 0) give_up(errno);
    }
    ::close(terminal);
  }
  if (::syscall(SYS_setgroups, identity.group_count, identity.groups) != 0 ||
      ::syscall(SYS_setresgid, identity.gid, identity.gid, identity.gid) != 0 ||
      ::syscall(SYS_setresuid, identity.uid, identity.uid, identity.uid) != 0) {
    give_up(errno);
  }
  ::sigprocmask(SIG_SETMASK, &context.command_signals, nullptr);
  // As execvp(3): the first file that runs wins; a refusal is remembered before "not found".
  int result = ENOENT;
  for (char** path = context.candidates; *path != nullptr; ++path) {
    ::execve(*path, context.argv, context.env);
    if (errno == ENOENT || errno == ENOTDIR) continue;
    result = errno;
    if (errno != EACCES) break;
  }
  give_up(result);
  __builtin_unreachable();
}

/// In a frame of its own: vfork returns twice, and locals that change between may be lost.
[[gnu::noinline]] pid_t start_command(const ChildContext& context, const MountsMessage& identity,
                                      int terminal) {
  const pid_t command = ::vfork();
  if (command == 0) become_command(context, identity, terminal);
  return command;
}

/// Keeps only the standard streams and the control socket, the latter under a known number.
int tidy_descriptors(const ChildContext& context, int* terminal) {
  int slave = -1;
  if (*terminal >= 0) {
    slave = ::fcntl(*terminal, F_DUPFD_CLOEXEC, kControlFd + 1);
    if (slave < 0) return errno;
  }
  if (context.control != kControlFd && ::dup3(context.control, kControlFd, O_CLOEXEC) < 0) {
    return errno;
  }
  if (slave >= 0) {
    // dup3 may have closed the original; move the copy to the next number.
    if (slave != kControlFd + 1 && ::dup3(slave, kControlFd + 1, O_CLOEXEC) < 0) return errno;
    *terminal = kControlFd + 1;
  }
  const unsigned first = kControlFd + (slave >= 0 ? 2 : 1);
  return ::syscall(SYS_close_range, first, ~0U, 0) == 0 ? 0 : errno;
}

/// The sandbox may see this process, but neither its memory nor what it was called with.
void hide(const ChildContext& context) {
  constexpr char kName[] = "varve-init";
  ::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
  ::prctl(PR_SET_NAME, kName, 0, 0, 0);
  std::fill(context.command_line.begin(), context.command_line.end(), '\0');
  const size_t n = std::min(sizeof kName, context.command_line.size());
  std::copy_n(kName, n, context.command_line.begin());
  if (n != 0) context.command_line[n - 1] = '\0';
}

/// Reaps everything that has ended; true once the command is among it.
bool reap(pid_t command, int* command_status) {
  bool ended = false;
  for (;;) {
    int status = 0;
    const pid_t pid = ::wait4(-1, &status, WNOHANG, nullptr);
    if (pid < 0 && errno == EINTR) continue;
    if (pid <= 0) return ended;
    if (pid == command && (WIFEXITED(status) || WIFSIGNALED(status))) {
      *command_status = status;
      ended = true;
    }
  }
}

[[noreturn]] void serve(pid_t command, uint64_t ready_ns) {
  sigset_t all;
  ::sigfillset(&all);
  for (;;) {
    int status = 0;
    const int signal = ::sigwaitinfo(&all, nullptr);
    if (signal < 0) continue;
    if (signal != SIGCHLD) {
      ::kill(command, signal);
    } else if (reap(command, &status)) {
      report({.kind = ReportKind::kEnded, .wait_status = status, .ready_ns = ready_ns});
      ::_exit(0);
    }
  }
}

}  // namespace

void run_init(ChildContext& context, const MountsMessage& identity, int terminal) {
  int failure = tidy_descriptors(context, &terminal);
  if (failure == 0) {
    hide(context);
    // The change of ids cleared what clone3 had inherited; the parent's end of the socket tells
    // whether it has died before this took effect.
    failure = ::prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) == 0 ? 0 : errno;
    char byte;
    if (::recv(kControlFd, &byte, 1, MSG_DONTWAIT | MSG_PEEK) == 0) ::_exit(1);
  }
  if (failure != 0) {
    report({.kind = ReportKind::kSetupFailed,
            .errno_value = failure,
            .operation = static_cast<uint32_t>(context.operations.size())});
    ::_exit(1);
  }
  const pid_t command = start_command(context, identity, terminal);
  const uint64_t ready_ns = monotonic_ns();
  if (command < 0) {
    report({.kind = ReportKind::kExecFailed, .errno_value = errno});
    ::_exit(1);
  }
  if (terminal >= 0) ::close(terminal);
  serve(command, ready_ns);
}

}  // namespace varve::launcher
