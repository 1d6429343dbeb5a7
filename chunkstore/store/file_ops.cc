#include "chunkstore/store/file_ops.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "base/file_io.h"

namespace varve::chunkstore {

Result<UniqueFd> open_beneath(int root_fd, const std::string& path, int flags, mode_t mode) {
  open_how how = {};
  how.flags = static_cast<uint64_t>(flags | O_CLOEXEC);
  how.mode = mode;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS;
  long fd;
  do {
    fd = ::syscall(SYS_openat2, root_fd, path.c_str(), &how, sizeof(how));
  } while (fd < 0 && (errno == EINTR || errno == EAGAIN));
  if (fd < 0) return fail_errno("opening " + quoted(path));
  return UniqueFd(static_cast<int>(fd));
}

Result<UniqueFd> FileOps::create_file(int root_fd, const std::string& path) {
  return open_beneath(root_fd, path, O_WRONLY | O_CREAT | O_EXCL, 0644);
}

Status FileOps::write(int fd, ByteView bytes) {
  return write_all(fd, bytes);
}

Status FileOps::set_direct(int fd, bool is_direct) {
  // Of the flags that can be changed the files here have no other.
  if (::fcntl(fd, F_SETFL, is_direct ? O_DIRECT : 0) != 0) return fail_errno("setting O_DIRECT");
  return {};
}

Status FileOps::sync_file(int fd, const std::string& path) {
  return fsync_fd(fd, path);
}

Result<bool> FileOps::make_dir(int root_fd, const std::string& path) {
  if (::mkdirat(root_fd, path.c_str(), 0755) == 0) return true;
  if (errno == EEXIST) return false;
  return fail_errno("creating directory " + quoted(path));
}

Result<bool> FileOps::rename_if_absent(int root_fd, const std::string& from,
                                       const std::string& to) {
  if (::renameat2(root_fd, from.c_str(), root_fd, to.c_str(), RENAME_NOREPLACE) == 0) return true;
  if (errno == EEXIST) return false;
  if (errno != EINVAL && errno != ENOSYS) return fail_errno("renaming to " + quoted(to));
  // NFS and some cluster filesystems know no RENAME_NOREPLACE, but hard links.
  if (::linkat(root_fd, from.c_str(), root_fd, to.c_str(), 0) != 0) {
    if (errno == EEXIST) return false;
    return fail_errno("linking " + quoted(to));
  }
  VARVE_TRY(remove_file(root_fd, from));
  return true;
}

Status FileOps::rename_over(int root_fd, const std::string& from, const std::string& to) {
  if (::renameat(root_fd, from.c_str(), root_fd, to.c_str()) == 0) return {};
  return fail_errno("renaming to " + quoted(to));
}

Status FileOps::remove_file(int root_fd, const std::string& path) {
  if (::unlinkat(root_fd, path.c_str(), 0) == 0) return {};
  return fail_errno("removing " + quoted(path));
}

Result<bool> FileOps::remove_dir(int root_fd, const std::string& path) {
  if (::unlinkat(root_fd, path.c_str(), AT_REMOVEDIR) == 0) return true;
  if (errno == ENOTEMPTY || errno == EEXIST || errno == ENOENT) return false;
  return fail_errno("removing directory " + quoted(path));
}

Status FileOps::sync_dir(int root_fd, const std::string& path) {
  VARVE_ASSIGN(const UniqueFd fd, open_beneath(root_fd, path, O_RDONLY | O_DIRECTORY));
  return fsync_fd(fd.get(), path);
}

FileOps& FileOps::real() {
  static FileOps ops;
  return ops;
}

}  // namespace varve::chunkstore
