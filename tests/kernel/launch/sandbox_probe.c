// Runs inside sandboxes of the kernel tests: tries things and prints how they ended, one a line.
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static void show(const char* what, long result) {
  printf("%s: %s\n", what, result >= 0 ? "ok" : strerrorname_np(errno));
}

static void calls(void) {
  show("mount", mount("none", "/tmp", "tmpfs", 0, NULL));
  show("fsopen", syscall(SYS_fsopen, "tmpfs", 0));
  show("unshare", unshare(CLONE_NEWUSER));
  show("clone newuser", syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0));
  show("clone3", syscall(SYS_clone3, NULL, 0));
  show("io_uring_setup", syscall(SYS_io_uring_setup, 1, NULL));
  show("bpf", syscall(SYS_bpf, 0, NULL, 0));
  show("keyctl", syscall(SYS_keyctl, 0, 0));
  show("ptrace", ptrace(PTRACE_TRACEME, 0, NULL, NULL));
  show("perf_event_open", syscall(SYS_perf_event_open, NULL, 0, -1, -1, 0));
  show("AF_ALG", socket(38, SOCK_SEQPACKET, 0));
  show("AF_VSOCK", socket(40, SOCK_STREAM, 0));
  show("AF_PACKET", socket(AF_PACKET, SOCK_RAW, 0));
  show("AF_INET", socket(AF_INET, SOCK_STREAM, 0));
  show("AF_UNIX", socket(AF_UNIX, SOCK_STREAM, 0));
  show("TIOCSTI", ioctl(0, TIOCSTI, "x"));
  show("PR_SCHED_CORE", prctl(62, 1, 0, 0, 0));
  show("mknod device", mknod("/tmp/device", S_IFCHR | 0666, 0x103));
  show("mknod fifo", mknod("/tmp/fifo", S_IFIFO | 0666, 0));
  show("settimeofday", syscall(SYS_settimeofday, NULL, NULL));
  show("setns", setns(open("/proc/self/ns/mnt", O_RDONLY), 0));
  show("SCHED_FIFO", sched_setscheduler(0, SCHED_FIFO, &(struct sched_param){.sched_priority = 1}));
  show("nice -5", setpriority(PRIO_PROCESS, 0, -5));
}

/// The classic way out of a chroot, by a root with CAP_SYS_CHROOT.
static void escape(void) {
  const int root = open("/", O_RDONLY | O_DIRECTORY);
  mkdir("/tmp/jail", 0755);
  show("chroot", chroot("/tmp/jail"));
  show("fchdir", fchdir(root));
  for (int i = 0; i < 64; ++i) {
    if (chdir("..") != 0) break;
  }
  show("chroot out", chroot("."));
  printf("sees its own root: %s\n", access("/bin/sandbox_probe", F_OK) == 0 ? "yes" : "no");
  printf("sees the root below: %s\n", access("/empty-file", F_OK) == 0 ? "yes" : "no");
}

/// 200 orphans whose parents end at once; PID 1 has to reap every one.
static void orphans(void) {
  for (int i = 0; i < 200; ++i) {
    if (fork() == 0) {
      if (fork() == 0) _exit(0);
      _exit(0);
    }
    wait(NULL);
  }
}

/// Allocates and touches `mebibytes`.
static void eat(int mebibytes) {
  for (int i = 0; i < mebibytes; ++i) {
    char* block = malloc(1 << 20);
    if (block == NULL) _exit(3);
    memset(block, i + 1, 1 << 20);
  }
}

/// All that root of the sandbox may do to PID 1, which has the same user. Ends with status 7.
static void pid_one(void) {
  const int limits[] = {RLIMIT_AS,    RLIMIT_DATA,       RLIMIT_NOFILE,
                        RLIMIT_NPROC, RLIMIT_SIGPENDING, RLIMIT_CPU};
  for (size_t i = 0; i < sizeof limits / sizeof limits[0]; ++i) {
    prlimit(1, limits[i], &(struct rlimit){0, 0}, NULL);
  }
  setpriority(PRIO_PROCESS, 1, 19);
  sched_setscheduler(1, SCHED_IDLE, &(struct sched_param){0});
  cpu_set_t first;
  CPU_ZERO(&first);
  CPU_SET(0, &first);
  sched_setaffinity(1, sizeof first, &first);
  for (int number = 1; number <= SIGRTMAX; ++number) {
    if (number != SIGKILL && number != SIGSTOP) signal(number, SIG_IGN);
  }
  for (int i = 0; i < 20000; ++i) kill(1, 1 + i % SIGRTMAX);
  _exit(7);
}

/// As many children as the limit allows.
static void forks(void) {
  int made = 0;
  for (; made < 500; ++made) {
    const pid_t pid = fork();
    if (pid == 0) {
      pause();
      _exit(0);
    }
    if (pid < 0) break;
  }
  printf("forks: %d\n", made);
}

/// Every child goes on: only the limit and the end of PID 1 stop it.
static void bomb(void) {
  printf("bomb\n");
  fflush(stdout);
  for (;;) {
    if (fork() < 0) usleep(1000);
  }
}

/// A tree far deeper than any path can name.
static void deep(void) {
  for (int i = 0; i < 500; ++i) {
    if (mkdir("dddddddddddddddddddddddddddddddd", 0700) != 0 ||
        chdir("dddddddddddddddddddddddddddddddd") != 0)
      _exit(3);
  }
  symlink("/", "link");
  mkfifo("fifo", 0600);
  chmod(".", 0);
}

int main(int argc, char** argv) {
  const char* what = argc > 1 ? argv[1] : "";
  if (strcmp(what, "calls") == 0) calls();
  if (strcmp(what, "escape") == 0) escape();
  if (strcmp(what, "orphans") == 0) orphans();
  if (strcmp(what, "eat") == 0) eat(atoi(argv[2]));
  if (strcmp(what, "pid1") == 0) pid_one();
  if (strcmp(what, "forks") == 0) forks();
  if (strcmp(what, "bomb") == 0) bomb();
  if (strcmp(what, "deep") == 0) deep();
  if (strcmp(what, "crash") == 0) abort();
  if (strcmp(what, "euid") == 0) printf("%u\n", geteuid());
  return 0;
}
