#include <fcntl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <vector>

#include "launcher/run.h"

namespace {

/// A closed standard stream would be the number of the next file opened, and then written to.
void open_standard_streams() {
  for (int fd = 0; fd <= 2; ++fd) {
    if (::fcntl(fd, F_GETFD) < 0 && errno == EBADF) (void)::open("/dev/null", O_RDWR);
  }
}

/// A caller that ignores SIGCHLD passes that on, and then nobody hears of the end of a child: not
/// this process, nor the first one of a sandbox. As the kernel's structure, all zero, has it.
void heed_ends_of_children() {
  const unsigned long by_default[4] = {};
  (void)::syscall(SYS_rt_sigaction, SIGCHLD, by_default, nullptr, sizeof(unsigned long));
}

}  // namespace

int main(int argc, char** argv) {
  open_standard_streams();
  heed_ends_of_children();
  const std::vector<std::string> args(argv + 1, argv + argc);
  // The kernel lays the words of argv out one after the other.
  char* const end = argv[argc - 1] + std::char_traits<char>::length(argv[argc - 1]) + 1;
  varve::ToolIo io;
  return varve::launcher::varve_main(args, io, {argv[0], end});
}
