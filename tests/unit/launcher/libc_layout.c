// Prints the layout of every structure that varve hands to libc or gets from it, and the constants
// that are libc's own. Built by glibc's headers and by musl's, it has to print the same.
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <termios.h>
#include <time.h>

#define SIZE(type) printf("%s: %zu bytes\n", #type, sizeof(type))
#define FIELD(type, field) printf("  %s at %zu\n", #field, offsetof(type, field))
#define VALUE(name) printf("%s = %lld\n", #name, (long long)(name))

int main(void) {
  SIZE(struct stat);
  FIELD(struct stat, st_dev);
  FIELD(struct stat, st_ino);
  FIELD(struct stat, st_mode);
  FIELD(struct stat, st_nlink);
  FIELD(struct stat, st_uid);
  FIELD(struct stat, st_gid);
  FIELD(struct stat, st_rdev);
  FIELD(struct stat, st_size);
  FIELD(struct stat, st_mtim);
  FIELD(struct stat, st_ctim);
  SIZE(struct statfs);
  FIELD(struct statfs, f_type);
  FIELD(struct statfs, f_bsize);
  FIELD(struct statfs, f_flags);
  FIELD(struct dirent, d_ino);
  FIELD(struct dirent, d_reclen);
  FIELD(struct dirent, d_type);
  FIELD(struct dirent, d_name);
  SIZE(struct timespec);
  SIZE(struct timeval);
  SIZE(struct rlimit);
  // Not its size: musl's has room behind what the kernel fills.
  FIELD(struct rusage, ru_utime);
  FIELD(struct rusage, ru_maxrss);
  SIZE(struct pollfd);
  SIZE(struct iovec);
  SIZE(struct sockaddr_un);
  SIZE(struct ucred);
  // The lengths are 64 bits wide in glibc, 32 and padding in musl: alike on a little-endian machine.
  SIZE(struct msghdr);
  FIELD(struct msghdr, msg_iov);
  FIELD(struct msghdr, msg_iovlen);
  FIELD(struct msghdr, msg_control);
  FIELD(struct msghdr, msg_controllen);
  FIELD(struct msghdr, msg_flags);
  SIZE(struct cmsghdr);
  FIELD(struct cmsghdr, cmsg_len);
  FIELD(struct cmsghdr, cmsg_level);
  FIELD(struct cmsghdr, cmsg_type);
  SIZE(sigset_t);
  SIZE(siginfo_t);
  FIELD(siginfo_t, si_pid);
  FIELD(siginfo_t, si_status);
  SIZE(struct signalfd_siginfo);
  SIZE(struct sigaction);
  FIELD(struct sigaction, sa_mask);
  FIELD(struct sigaction, sa_flags);
  SIZE(struct termios);
  FIELD(struct termios, c_lflag);
  FIELD(struct termios, c_cc);
  SIZE(struct winsize);
  VALUE(O_PATH);
  VALUE(O_TMPFILE);
  VALUE(O_CLOEXEC);
  VALUE(AT_EMPTY_PATH);
  VALUE(AT_EACCESS);
  VALUE(MSG_CMSG_CLOEXEC);
  VALUE(SO_RCVTIMEO);
  VALUE(SO_SNDTIMEO);
  VALUE(SFD_CLOEXEC);
  VALUE(RLIMIT_CORE);
  VALUE(RLIMIT_NICE);
  VALUE(RLIMIT_RTPRIO);
  VALUE(TCSANOW);
  VALUE(UTIME_OMIT);
  VALUE(EOF);
  return 0;
}
