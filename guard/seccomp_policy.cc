#include "guard/seccomp_policy.h"

#include <linux/prctl.h>
#include <sched.h>
#include <sys/socket.h>

#include <algorithm>

namespace varve::guard {
namespace {

constexpr const char* kAllowed[] = {
    // Files and directories.
    "access", "chdir", "chmod", "chown", "close", "close_range", "copy_file_range", "creat", "dup",
    "dup2", "dup3", "faccessat", "faccessat2", "fadvise64", "fallocate", "fchdir", "fchmod",
    "fchmodat", "fchmodat2", "fchown", "fchownat", "fcntl", "fdatasync", "fgetxattr", "flistxattr",
    "flock", "fremovexattr", "fsetxattr", "fstat", "fstatfs", "fsync", "ftruncate", "futimesat",
    "getcwd", "getdents", "getdents64", "getxattr", "getxattrat", "inotify_add_watch",
    "inotify_init", "inotify_init1", "inotify_rm_watch", "lchown", "lgetxattr", "link", "linkat",
    "listxattr", "listxattrat", "llistxattr", "lremovexattr", "lseek", "lsetxattr", "lstat",
    "mkdir", "mkdirat", "mknod", "mknodat", "newfstatat", "open", "openat", "openat2", "pread64",
    "preadv", "preadv2", "pwrite64", "pwritev", "pwritev2", "read", "readahead", "readlink",
    "readlinkat", "readv", "removexattr", "removexattrat", "rename", "renameat", "renameat2",
    "rmdir", "sendfile", "setxattr", "setxattrat", "splice", "stat", "statfs", "statx", "symlink",
    "symlinkat", "sync", "sync_file_range", "syncfs", "tee", "truncate", "umask", "unlink",
    "unlinkat", "utime", "utimensat", "utimes", "vmsplice", "write", "writev", "chroot",
    // Memory.
    "brk", "cachestat", "get_mempolicy", "madvise", "membarrier", "memfd_create", "mincore",
    "mlock", "mlock2", "mlockall", "mmap", "mprotect", "mremap", "mseal", "msync", "munlock",
    "munlockall", "munmap", "pkey_alloc", "pkey_free", "pkey_mprotect", "process_madvise",
    "process_mrelease", "remap_file_pages",
    // Processes and threads.
    "arch_prctl", "capget", "capset", "execve", "execveat", "exit", "exit_group", "fork", "getegid",
    "geteuid", "getgid", "getgroups", "getpgid", "getpgrp", "getpid", "getppid", "getpriority",
    "getresgid", "getresuid", "getrlimit", "getrusage", "getsid", "gettid", "getuid",
    "get_robust_list", "get_thread_area", "ioprio_get", "ioprio_set", "kill", "landlock_add_rule",
    "landlock_create_ruleset", "landlock_restrict_self", "pidfd_open", "pidfd_send_signal", "rseq",
    "sched_getaffinity", "sched_getattr", "sched_getparam", "sched_get_priority_max",
    "sched_get_priority_min", "sched_getscheduler", "sched_rr_get_interval", "sched_setaffinity",
    "sched_yield", "seccomp", "setfsgid", "setfsuid", "setgid", "setgroups", "setpgid", "setregid",
    "setresgid", "setresuid", "setreuid", "setsid", "setuid", "set_robust_list", "set_thread_area",
    "set_tid_address", "tgkill", "times", "tkill", "vfork", "wait4", "waitid",
    // sched_set* and setpriority can only lower: the kernel asks for CAP_SYS_NICE or RLIMIT_NICE
    // and RLIMIT_RTPRIO above zero, and a sandbox has neither.
    "sched_setattr", "sched_setparam", "sched_setscheduler", "setpriority",
    // Signals, time, waiting.
    "adjtimex", "alarm", "clock_adjtime", "clock_getres", "clock_gettime", "clock_nanosleep",
    "epoll_create", "epoll_create1", "epoll_ctl", "epoll_ctl_old", "epoll_pwait", "epoll_pwait2",
    "epoll_wait", "epoll_wait_old", "eventfd", "eventfd2", "futex", "futex_requeue", "futex_wait",
    "futex_waitv", "futex_wake", "getitimer", "gettimeofday", "nanosleep", "pause", "poll", "ppoll",
    "pselect6", "restart_syscall", "rt_sigaction", "rt_sigpending", "rt_sigprocmask",
    "rt_sigqueueinfo", "rt_sigreturn", "rt_sigsuspend", "rt_sigtimedwait", "rt_tgsigqueueinfo",
    "select", "setitimer", "sigaltstack", "signalfd", "signalfd4", "time", "timer_create",
    "timer_delete", "timer_getoverrun", "timer_gettime", "timer_settime", "timerfd_create",
    "timerfd_gettime", "timerfd_settime",
    // Talking to each other and to the network (which families: see the argument rules).
    "accept", "accept4", "bind", "connect", "getpeername", "getsockname", "getsockopt", "listen",
    "mq_getsetattr", "mq_notify", "mq_open", "mq_timedreceive", "mq_timedsend", "mq_unlink",
    "msgctl", "msgget", "msgrcv", "msgsnd", "pipe", "pipe2", "recvfrom", "recvmmsg", "recvmsg",
    "semctl", "semget", "semop", "semtimedop", "sendmmsg", "sendmsg", "sendto", "setsockopt",
    "shmat", "shmctl", "shmdt", "shmget", "shutdown",
    // Asynchronous I/O of the old kind (databases use it), and the rest.
    "getcpu", "getrandom", "io_cancel", "io_destroy", "io_getevents", "io_pgetevents", "io_setup",
    "io_submit", "sysinfo", "uname", "sethostname", "setdomainname"};

constexpr const char* kRefused[] = {
    // Kernel surfaces with a long record of holes that a sandboxed build or test does not need.
    "bpf", "io_uring_enter", "io_uring_register", "io_uring_setup", "perf_event_open",
    "userfaultfd", "add_key", "keyctl", "request_key",
    // The machine itself.
    "acct", "delete_module", "finit_module", "init_module", "ioperm", "iopl", "kexec_file_load",
    "kexec_load", "lookup_dcookie", "modify_ldt", "quotactl", "quotactl_fd", "reboot", "swapoff",
    "swapon", "syslog", "settimeofday", "clock_settime", "vhangup", "nfsservctl", "uselib", "ustat",
    "sysfs", "_sysctl",
    // Mounts and namespaces.
    "fsconfig", "fsmount", "fsopen", "fspick", "listmount", "mount", "mount_setattr", "move_mount",
    "open_tree", "pivot_root", "setns", "statmount", "umount2", "unshare",
    // Handles that pass by path checks, and watchers of whole filesystems.
    "fanotify_init", "fanotify_mark", "name_to_handle_at", "open_by_handle_at",
    // Other processes' memory and descriptors.
    "kcmp", "pidfd_getfd", "process_vm_readv", "process_vm_writev", "ptrace",
    // Placement of memory on the host's nodes; memory that the host cannot inspect.
    "mbind", "memfd_secret", "migrate_pages", "move_pages", "set_mempolicy",
    "set_mempolicy_home_node"};

// unshare and setns are refused above; clone may not make namespaces either.
constexpr uint64_t kNamespaceFlags = CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC |
                                     CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET;
constexpr uint64_t kWord = 0xffffffff;

// clone3 hides its flags in memory, so it stays in neither list: ENOSYS makes C libraries use
// clone.
constexpr ArgumentRule kArgumentRules[] = {
    {"clone", 0, kNamespaceFlags, 0},
    {"socket", 0, ~uint64_t{0}, AF_UNIX},
    {"socket", 0, ~uint64_t{0}, AF_INET},
    {"socket", 0, ~uint64_t{0}, AF_INET6},
    {"socket", 0, ~uint64_t{0}, AF_NETLINK, 2, kWord, 0 /* NETLINK_ROUTE */},
    {"socketpair", 0, ~uint64_t{0}, AF_UNIX},
    // PER_LINUX, PER_LINUX32, UNAME26 with both, and the query.
    {"personality", 0, ~uint64_t{0}, 0x0},
    {"personality", 0, ~uint64_t{0}, 0x8},
    {"personality", 0, ~uint64_t{0}, 0x20000},
    {"personality", 0, ~uint64_t{0}, 0x20008},
    {"personality", 0, ~uint64_t{0}, 0xffffffff},
};

constexpr uint16_t kRefusedIoctls[] = {
    0x5412,  // TIOCSTI: types into somebody's terminal.
    0x541c,  // TIOCLINUX: selection and paste on consoles.
    0x5423,  // TIOCSETD: loads line disciplines.
    0x6602,  // FS_IOC_SETFLAGS: an immutable file would outlive the sandbox.
    0x660f,  // EXT4_IOC_MOVE_EXT
    0x6610,  // EXT4_IOC_RESIZE_FS
    0x6611,  // EXT4_IOC_SWAP_BOOT
    0x5877,  // FIFREEZE
    0x5878,  // FITHAW
    0x5879,  // FITRIM
    0x5820,  // FS_IOC_FSSETXATTR: a project id is a way out of a quota.
    0x586d,  // XFS_IOC_SWAPEXT: ordinary file permissions suffice for it.
    0x587d,  // XFS_IOC_GOINGDOWN
    0x5881,  // XFS_IOC_EXCHANGE_RANGE
    0x5882,  // XFS_IOC_START_COMMIT
    0x5883,  // XFS_IOC_COMMIT_RANGE
    0xe500,  // FUSE_DEV_IOC_CLONE
};

constexpr uint16_t kAllowedIoctls[] = {
    0x5421,  // FIONBIO (also of type 'T')
    0x9409,  // FICLONE
    0x940d,  // FICLONERANGE
    0x9436,  // FIDEDUPERANGE
    0x5200,  // RNDGETENTCNT
    0x581f,  // FS_IOC_FSGETXATTR
};

constexpr uint8_t kAllowedIoctlTypes[] = {
    0x54,  // 'T': terminals, FIONREAD, FIOCLEX and the like.
    0x89,  // Sockets.
    0x66,  // 'f': FIEMAP, GETFLAGS, GETVERSION, fs-verity measurements.
};

constexpr uint8_t kRefusedIoctlTypes[] = {
    0x12,  // BLK*
    0x4c,  // LOOP_*
    0x58,  // 'X': XFS and freezing.
    0x94,  // btrfs (clones are allowed above)
    0xab,  // NBD
    0xae,  // KVM
    0xaf,  // VHOST
    0xe5,  // FUSE
    0xfd,  // device mapper
};

constexpr uint32_t kRefusedPrctls[] = {PR_SCHED_CORE};

template <class T, size_t kCount>
bool contains(const T (&list)[kCount], T value) {
  return std::find(std::begin(list), std::end(list), value) != std::end(list);
}

}  // namespace

std::span<const char* const> allowed_calls() {
  return kAllowed;
}
std::span<const char* const> refused_calls() {
  return kRefused;
}
std::span<const ArgumentRule> argument_rules() {
  return kArgumentRules;
}
std::span<const uint16_t> refused_ioctls() {
  return kRefusedIoctls;
}
std::span<const uint16_t> allowed_ioctls() {
  return kAllowedIoctls;
}
std::span<const uint8_t> allowed_ioctl_types() {
  return kAllowedIoctlTypes;
}
std::span<const uint8_t> refused_ioctl_types() {
  return kRefusedIoctlTypes;
}
std::span<const uint32_t> refused_prctls() {
  return kRefusedPrctls;
}

IoctlAnswer answer_to_ioctl(uint32_t request) {
  const auto low = static_cast<uint16_t>(request);
  const auto type = static_cast<uint8_t>(request >> 8);
  if (contains(kRefusedIoctls, low)) return IoctlAnswer::kRefuse;
  if (contains(kAllowedIoctls, low)) return IoctlAnswer::kAllow;
  if (contains(kAllowedIoctlTypes, type)) return IoctlAnswer::kAllow;
  if (contains(kRefusedIoctlTypes, type)) return IoctlAnswer::kRefuse;
  return IoctlAnswer::kNotATerminal;
}

}  // namespace varve::guard
