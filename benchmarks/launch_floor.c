// The floor of a sandbox launch: the system calls that nobody can leave out, in plain C.
//
// One launch is: the sandbox's cgroups with a limit each; upper and work directories; clone3 into
// user, mount and pid namespaces; in the child, at the same time as the rest, uts, ipc, net and
// cgroup namespaces; id maps; id-mapped clones of the lower EROFS mount and of the upper; the
// overlay; /proc with the same masks as `varve run` (guard/masks.def); the switch of the root;
// no_new_privs; the same seccomp program; exec of a static program. It is timed from its first
// system call until its exit is seen.
//
// Not part of it, because made once or after the clock has stopped: the EROFS mount of the image,
// the mount namespace in which the launches happen, removal of groups and directories. There is no
// PID 1, no /dev, no /sys, no service to ask for the image, no lock: those are varve's own to pay.
//
//   launch_floor --image FILE.erofs --upper DIR --runs N [--parallel P] [--process 1]
//                -- PROGRAM [ARGUMENT...]
//
// prints the nanoseconds of every launch, one a line. With --process each launch is a program of
// its own, which also removes what it made: the floor of a command line.
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/magic.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <linux/securebits.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const struct sock_filter kFilter[] = {
#include "seccomp_filter.inc"
};

struct mask {
  const char* path;
  int is_directory;
};
static const struct mask kMasks[] = {
#define VARVE_MASK_FILE(path, reason) {path, 0},
#define VARVE_MASK_DIR(path, reason) {path, 1},
#include "guard/masks.def"
};

enum { kGroupCountMax = 4, kIdsPerSlot = 65536, kPathMax = 512 };
static const unsigned kFirstHostId = 0x7f000000;

/// What is made once, before the clock runs.
struct setup {
  char upper_root[kPathMax];
  int lower;  ///< The EROFS mount.
  int empty;  ///< A tmpfs with `file` and `dir`, for masks.
  int is_v2;
  int group_count;
  int group_roots[kGroupCountMax];
  int into_index;  ///< Which group is v2, or -1.
  char** command;
  int by_process;
};

static void die(const char* what) {
  dprintf(STDERR_FILENO, "launch_floor: %s: %s\n", what, strerror(errno));
  _exit(1);
}
static int check(long result, const char* what) {
  if (result < 0) die(what);
  return (int)result;
}

static uint64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int new_mount(const char* type, const char* source, unsigned attributes) {
  const int context = check(fsopen(type, FSOPEN_CLOEXEC), type);
  if (source != NULL) check(fsconfig(context, FSCONFIG_SET_STRING, "source", source, 0), source);
  check(fsconfig(context, FSCONFIG_CMD_CREATE, NULL, NULL, 0), type);
  const int mount = check(fsmount(context, FSMOUNT_CLOEXEC, attributes), type);
  close(context);
  return mount;
}

static void write_file(int directory, const char* name, const char* text) {
  const int fd = check(openat(directory, name, O_WRONLY | O_CLOEXEC), name);
  check(write(fd, text, strlen(text)), name);
  close(fd);
}

/// One message of one byte, with a descriptor or without (-1).
static void send_fd(int socket, int fd) {
  char byte = 0;
  struct iovec vector = {&byte, 1};
  union {
    char bytes[CMSG_SPACE(sizeof(int))];
    struct cmsghdr align;
  } control = {{0}};
  struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1};
  if (fd >= 0) {
    message.msg_control = control.bytes;
    message.msg_controllen = sizeof control.bytes;
    struct cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(header), &fd, sizeof fd);
  }
  check(sendmsg(socket, &message, MSG_NOSIGNAL), "sendmsg");
}

static int receive_fd(int socket) {
  char byte;
  struct iovec vector = {&byte, 1};
  union {
    char bytes[CMSG_SPACE(sizeof(int))];
    struct cmsghdr align;
  } control;
  struct msghdr message = {.msg_iov = &vector,
                           .msg_iovlen = 1,
                           .msg_control = control.bytes,
                           .msg_controllen = sizeof control.bytes};
  if (recvmsg(socket, &message, MSG_CMSG_CLOEXEC) != 1) die("recvmsg");
  int fd = -1;
  struct cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (header != NULL) memcpy(&fd, CMSG_DATA(header), sizeof fd);
  return fd;
}

/// In the launching namespace, whose /proc it covers until the root is there.
static void mask_proc(int proc) {
  check(move_mount(proc, "", AT_FDCWD, "/proc", MOVE_MOUNT_F_EMPTY_PATH), "/proc");
  for (size_t i = 0; i < sizeof kMasks / sizeof *kMasks; ++i) {
    char path[kPathMax];
    snprintf(path, sizeof path, "/proc/%s", kMasks[i].path);
    if (mount(kMasks[i].is_directory ? "/mnt/dir" : "/mnt/file", path, NULL, MS_BIND, NULL) != 0 &&
        errno != ENOENT) {
      die(path);
    }
  }
  const int sys = check(open_tree(proc, "sys", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC), "sys");
  struct mount_attr attributes = {.attr_set = MOUNT_ATTR_RDONLY};
  check(mount_setattr(sys, "", AT_EMPTY_PATH, &attributes, sizeof attributes), "read-only");
  check(move_mount(sys, "", proc, "sys", MOVE_MOUNT_F_EMPTY_PATH), "sys");
}

static void run_child(const struct setup* setup, const int* joins, int socket) {
  for (int i = 0; i < setup->group_count; ++i) {
    if (joins[i] >= 0) check(write(joins[i], "0", 1), "tasks");
  }
  check(unshare(CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWNET | CLONE_NEWCGROUP), "unshare");
  receive_fd(socket);
  check(syscall(SYS_setresgid, 0, 0, 0), "setresgid");
  check(syscall(SYS_setresuid, 0, 0, 0), "setresuid");
  const int proc =
      new_mount("proc", NULL, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);
  mask_proc(proc);
  const int root = receive_fd(socket);
  check(move_mount(root, "", AT_FDCWD, "/", MOVE_MOUNT_F_EMPTY_PATH), "move_mount");
  check(fchdir(root), "fchdir");
  check(chroot("."), "chroot");
  check(move_mount(proc, "", AT_FDCWD, "proc", MOVE_MOUNT_F_EMPTY_PATH), "proc");
  check(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs");
  const struct sock_fprog program = {sizeof kFilter / sizeof *kFilter,
                                     (struct sock_filter*)kFilter};
  check(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program), "seccomp");
  char* const environment[] = {NULL};
  execve(setup->command[0], setup->command, environment);
  die(setup->command[0]);
}

static int mount_overlay(const struct setup* setup, int upper, int user_namespace) {
  struct mount_attr idmap = {.attr_set = MOUNT_ATTR_IDMAP, .userns_fd = (unsigned)user_namespace};
  const int lower = check(
      open_tree(setup->lower, "", AT_EMPTY_PATH | OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC), "lower");
  check(mount_setattr(lower, "", AT_EMPTY_PATH, &idmap, sizeof idmap), "idmap lower");
  const int upper_mount =
      check(open_tree(upper, "", AT_EMPTY_PATH | OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC), "upper");
  check(mount_setattr(upper_mount, "", AT_EMPTY_PATH, &idmap, sizeof idmap), "idmap upper");
  const int u = check(openat(upper_mount, "upper", O_PATH | O_CLOEXEC), "upper");
  const int w = check(openat(upper_mount, "work", O_PATH | O_CLOEXEC), "work");
  const int context = check(fsopen("overlay", FSOPEN_CLOEXEC), "overlay");
  check(fsconfig(context, FSCONFIG_SET_FD, "lowerdir+", NULL, lower), "lowerdir+");
  check(fsconfig(context, FSCONFIG_SET_FD, "upperdir", NULL, u), "upperdir");
  check(fsconfig(context, FSCONFIG_SET_FD, "workdir", NULL, w), "workdir");
  check(fsconfig(context, FSCONFIG_SET_STRING, "xino", "on", 0), "xino");
  check(fsconfig(context, FSCONFIG_SET_STRING, "metacopy", "off", 0), "metacopy");
  check(fsconfig(context, FSCONFIG_SET_STRING, "redirect_dir", "nofollow", 0), "redirect_dir");
  check(fsconfig(context, FSCONFIG_SET_FLAG, "volatile", NULL, 0), "volatile");
  setfsuid(kFirstHostId);
  setfsgid(kFirstHostId);
  check(fsconfig(context, FSCONFIG_CMD_CREATE, NULL, NULL, 0), "creating the overlay");
  setfsuid(0);
  setfsgid(0);
  const int root = check(fsmount(context, FSMOUNT_CLOEXEC, 0), "fsmount");
  const int done[] = {context, u, w, lower, upper_mount};
  for (size_t i = 0; i < sizeof done / sizeof *done; ++i) close(done[i]);
  return root;
}

static void make_groups(const struct setup* setup, const char* name, int* groups, int* joins) {
  static const char* const kLimits[2][kGroupCountMax] = {{NULL, NULL, NULL, "pids.max"},
                                                         {"pids.max", NULL, NULL, NULL}};
  for (int i = 0; i < setup->group_count; ++i) {
    check(mkdirat(setup->group_roots[i], name, 0755), "cgroup");
    groups[i] =
        check(openat(setup->group_roots[i], name, O_RDONLY | O_DIRECTORY | O_CLOEXEC), name);
    joins[i] = i == setup->into_index
                   ? -1
                   : check(openat(groups[i], "tasks", O_WRONLY | O_CLOEXEC), "tasks");
    const char* limit = kLimits[setup->is_v2][i];
    if (limit != NULL) write_file(groups[i], limit, "4096");
  }
}

static uint64_t launch(const struct setup* setup, const char* name) {
  const uint64_t start = now_ns();
  int groups[kGroupCountMax], joins[kGroupCountMax];
  make_groups(setup, name, groups, joins);
  char path[kPathMax + 64];
  snprintf(path, sizeof path, "%s/%s", setup->upper_root, name);
  check(mkdir(path, 0700), path);
  const int upper = check(open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), path);
  check(mkdirat(upper, "upper", 0755), "upper");
  check(mkdirat(upper, "work", 0700), "work");
  int sockets[2];
  check(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets), "socketpair");
  struct clone_args arguments = {.flags = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID,
                                 .exit_signal = SIGCHLD};
  if (setup->into_index >= 0) {
    arguments.flags |= CLONE_INTO_CGROUP;
    arguments.cgroup = (uint64_t)groups[setup->into_index];
  }
  const pid_t pid = check(syscall(SYS_clone3, &arguments, sizeof arguments), "clone3");
  if (pid == 0) {
    close(sockets[0]);
    run_child(setup, joins, sockets[1]);
  }
  close(sockets[1]);
  char map[64];
  snprintf(map, sizeof map, "0 %u %u\n", kFirstHostId, kIdsPerSlot);
  snprintf(path, sizeof path, "/proc/%d", pid);
  const int process = check(open(path, O_PATH | O_DIRECTORY | O_CLOEXEC), path);
  write_file(process, "uid_map", map);
  write_file(process, "gid_map", map);
  const int user_namespace = check(openat(process, "ns/user", O_RDONLY | O_CLOEXEC), "ns/user");
  send_fd(sockets[0], -1);
  const int root = mount_overlay(setup, upper, user_namespace);
  send_fd(sockets[0], root);
  close(root);
  int status;
  check(waitpid(pid, &status, 0), "waitpid");
  const uint64_t elapsed = now_ns() - start;
  if (status != 0) {
    dprintf(STDERR_FILENO, "launch_floor: the program ended with wait status %d\n", status);
    _exit(1);
  }
  close(process);
  close(user_namespace);
  close(sockets[0]);
  close(upper);
  for (int i = 0; i < setup->group_count; ++i) {
    close(groups[i]);
    if (joins[i] >= 0) close(joins[i]);
    check(unlinkat(setup->group_roots[i], name, AT_REMOVEDIR), "removing a cgroup");
  }
  return elapsed;
}

/// The leftovers of one launch, whose program wrote nothing.
static void remove_upper(const struct setup* setup, const char* name) {
  static const char* const kParts[] = {"/work/work/incompat/volatile/dirty",
                                       "/work/work/incompat/volatile",
                                       "/work/work/incompat",
                                       "/work/work",
                                       "/work",
                                       "/upper",
                                       ""};
  char path[kPathMax + 128];
  for (size_t i = 0; i < sizeof kParts / sizeof *kParts; ++i) {
    snprintf(path, sizeof path, "%s/%s%s", setup->upper_root, name, kParts[i]);
    if (remove(path) != 0) die(path);
  }
}

static void find_groups(struct setup* setup) {
  struct statfs status;
  check(statfs("/sys/fs/cgroup", &status), "/sys/fs/cgroup");
  setup->is_v2 = status.f_type == CGROUP2_SUPER_MAGIC;
  setup->into_index = -1;
  static const char* const kV1[] = {"unified", "memory", "cpu", "pids"};
  for (int i = 0; i < (setup->is_v2 ? 1 : kGroupCountMax); ++i) {
    char path[kPathMax];
    snprintf(path, sizeof path, setup->is_v2 ? "/sys/fs/cgroup" : "/sys/fs/cgroup/%s", kV1[i]);
    setup->group_roots[i] = check(open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), path);
    if (i == 0) setup->into_index = 0;
    ++setup->group_count;
  }
}

static void prepare(struct setup* setup, const char* image) {
  find_groups(setup);
  check(unshare(CLONE_NEWNS), "unshare");
  check(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), "private");
  setup->lower = new_mount("erofs", image, MOUNT_ATTR_RDONLY);
  setup->empty = new_mount("tmpfs", NULL, 0);
  check(mkdirat(setup->empty, "lower", 0755), "lower");
  check(mkdirat(setup->empty, "dir", 0555), "dir");
  check(mknodat(setup->empty, "file", S_IFREG | 0444, 0), "file");
  // Clones are made of attached mounts; /mnt exists everywhere and is private here.
  check(move_mount(setup->empty, "", AT_FDCWD, "/mnt", MOVE_MOUNT_F_EMPTY_PATH), "/mnt");
  check(move_mount(setup->lower, "", setup->empty, "lower", MOVE_MOUNT_F_EMPTY_PATH), "lower");
  check(prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP, 0, 0, 0), "securebits");
}

/// This program again, in the same mount namespace: see launch_one().
static uint64_t launch_process(const struct setup* setup, char* name) {
  const uint64_t start = now_ns();
  char* arguments[] = {"launch_floor",           "--one",           name,
                       (char*)setup->upper_root, setup->command[0], NULL};
  const pid_t pid = vfork();
  if (pid == 0) {
    execv("/proc/self/exe", arguments);
    _exit(1);
  }
  int status;
  check(waitpid(check(pid, "vfork"), &status, 0), "waitpid");
  if (status != 0) _exit(1);
  return now_ns() - start;
}

static int launch_one(char** arguments) {
  struct setup setup = {.command = arguments + 2};
  snprintf(setup.upper_root, kPathMax, "%s", arguments[1]);
  find_groups(&setup);
  setup.lower = check(open("/mnt/lower", O_PATH | O_DIRECTORY | O_CLOEXEC), "/mnt/lower");
  launch(&setup, arguments[0]);
  remove_upper(&setup, arguments[0]);
  _exit(0);
}

static void work(const struct setup* setup, int runs) {
  uint64_t* samples = calloc((size_t)runs, sizeof *samples);
  if (samples == NULL) die("calloc");
  char name[64];
  for (int i = 0; i < runs; ++i) {
    snprintf(name, sizeof name, "varve-floor-%d-%d", getpid(), i);
    if (setup->by_process) {
      samples[i] = launch_process(setup, name);
      continue;
    }
    samples[i] = launch(setup, name);
    remove_upper(setup, name);
  }
  // One write a line keeps lines of parallel workers whole.
  for (int i = 0; i < runs; ++i) dprintf(STDOUT_FILENO, "%llu\n", (unsigned long long)samples[i]);
  free(samples);
}

int main(int argc, char** argv) {
  if (argc == 5 && strcmp(argv[1], "--one") == 0) return launch_one(argv + 2);
  struct setup setup = {.lower = -1};
  const char* image = NULL;
  int runs = 1, parallel = 1, at = 1;
  for (; at + 1 < argc && strcmp(argv[at], "--") != 0; at += 2) {
    if (strcmp(argv[at], "--image") == 0) image = argv[at + 1];
    if (strcmp(argv[at], "--upper") == 0) snprintf(setup.upper_root, kPathMax, "%s", argv[at + 1]);
    if (strcmp(argv[at], "--runs") == 0) runs = atoi(argv[at + 1]);
    if (strcmp(argv[at], "--parallel") == 0) parallel = atoi(argv[at + 1]);
    if (strcmp(argv[at], "--process") == 0) setup.by_process = atoi(argv[at + 1]);
  }
  if (image == NULL || setup.upper_root[0] == '\0' || at + 1 >= argc || runs < 1 || parallel < 1) {
    dprintf(STDERR_FILENO,
            "usage: launch_floor --image FILE --upper DIR --runs N [--parallel P] [--process 1]\n"
            "         -- PROGRAM...\n");
    return 2;
  }
  setup.command = argv + at + 1;
  prepare(&setup, image);
  for (int i = 0; i < parallel; ++i) {
    const pid_t worker = check(fork(), "fork");
    if (worker == 0) {
      work(&setup, runs);
      _exit(0);
    }
  }
  int failed = 0;
  for (int i = 0; i < parallel; ++i) {
    int status;
    check(wait(&status), "wait");
    failed |= status != 0;
  }
  return failed;
}
