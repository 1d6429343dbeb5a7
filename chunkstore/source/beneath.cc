#include "chunkstore/source/beneath.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>

namespace varve::chunkstore {
namespace {

Result<UniqueFd> open_piece(int root_fd, std::string_view path, int flags) {
  open_how how{};
  how.flags = static_cast<uint64_t>(flags | O_CLOEXEC);
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
  const std::string name = path.empty() ? "." : std::string(path);
  for (;;) {
    const long fd = ::syscall(SYS_openat2, root_fd, name.c_str(), &how, sizeof(how));
    if (fd >= 0) return UniqueFd(static_cast<int>(fd));
    // EAGAIN: a rename elsewhere raced with the walk; openat2(2) says to try again.
    if (errno != EINTR && errno != EAGAIN) return fail_errno("");
  }
}

}  // namespace

Result<UniqueFd> open_beneath(int root_fd, std::string_view path, int flags) {
  UniqueFd directory;
  int from_fd = root_fd;
  while (path.size() >= PATH_MAX) {
    const size_t slash = path.rfind('/', PATH_MAX - 1);
    if (slash == std::string_view::npos) return fail_errno(ENAMETOOLONG, "");
    VARVE_ASSIGN(directory, open_piece(from_fd, path.substr(0, slash), O_PATH | O_DIRECTORY));
    from_fd = directory.get();
    path.remove_prefix(slash + 1);
  }
  return open_piece(from_fd, path, flags);
}

}  // namespace varve::chunkstore
