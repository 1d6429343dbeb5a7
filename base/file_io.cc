#include "base/file_io.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>

namespace varve {

Result<UniqueFd> open_file(const std::string& path, int flags, mode_t mode) {
  return open_file_at(AT_FDCWD, path, flags, mode);
}

Result<UniqueFd> open_file_at(int dir_fd, const std::string& path, int flags, mode_t mode) {
  int fd;
  do {
    fd = ::openat(dir_fd, path.c_str(), flags | O_CLOEXEC, mode);
  } while (fd < 0 && errno == EINTR);
  if (fd < 0) return fail_errno("opening " + quoted(path));
  return UniqueFd(fd);
}

Result<size_t> pread_some(int fd, uint64_t offset, MutableByteView to) {
  size_t done = 0;
  while (done < to.size()) {
    const ssize_t n =
        ::pread(fd, to.data() + done, to.size() - done, static_cast<off_t>(offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail_errno("reading at offset " + std::to_string(offset + done));
    if (n == 0) break;
    done += static_cast<size_t>(n);
  }
  return done;
}

Status pread_exact(int fd, uint64_t offset, MutableByteView to) {
  VARVE_ASSIGN(const size_t done, pread_some(fd, offset, to));
  if (done != to.size()) {
    return fail(ErrorCode::kCorruption, "file ends at offset " + std::to_string(offset + done) +
                                            ", " + std::to_string(to.size() - done) +
                                            " bytes too early");
  }
  return {};
}

Status pwrite_all(int fd, uint64_t offset, ByteView bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail_errno("writing at offset " + std::to_string(offset));
    offset += static_cast<uint64_t>(n);
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
  return {};
}

Status write_all(int fd, ByteView bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail_errno("writing");
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
  return {};
}

Result<Bytes> read_file(const std::string& path, uint64_t bytes_max) {
  VARVE_ASSIGN(const UniqueFd fd, open_file(path, O_RDONLY));
  struct stat status;
  if (::fstat(fd.get(), &status) != 0) return fail_errno("inspecting " + quoted(path));
  // The size is a hint: files in /proc say 0, and a file may grow. One byte more finds the end.
  Bytes bytes(std::min<uint64_t>(std::max<off_t>(status.st_size, 4095), bytes_max) + 1);
  size_t done = 0;
  for (;;) {
    auto n = pread_some(fd.get(), done, MutableByteView(bytes).subspan(done));
    if (!n) return fail(std::move(n).error(), "reading " + quoted(path));
    done += *n;
    if (done < bytes.size()) break;
    if (done > bytes_max) {
      return fail(ErrorCode::kInvalidArgument, quoted(path) + " is larger than the " +
                                                   std::to_string(bytes_max) + " bytes allowed");
    }
    bytes.resize(std::min<uint64_t>(2 * bytes.size(), bytes_max + 1));
  }
  bytes.resize(done);
  return bytes;
}

Status fsync_fd(int fd, std::string_view what) {
  if (::fsync(fd) != 0) return fail_errno("syncing " + quoted(what));
  return {};
}

Status fsync_dir(const std::string& path) {
  VARVE_ASSIGN(const UniqueFd fd, open_file(path, O_RDONLY | O_DIRECTORY));
  return fsync_fd(fd.get(), path);
}

Status make_directories(const std::string& path, mode_t mode) {
  for (size_t slash = 0; slash != std::string::npos;) {
    slash = path.find('/', slash + 1);
    const std::string prefix = path.substr(0, slash);
    if (::mkdir(prefix.c_str(), mode) == 0) continue;
    const int mkdir_errno = errno;
    // An existing directory on a read-only or foreign filesystem answers EROFS or EACCES.
    struct stat status;
    if (::stat(prefix.c_str(), &status) == 0 && S_ISDIR(status.st_mode)) continue;
    return fail_errno(mkdir_errno, "creating directory " + quoted(prefix));
  }
  return {};
}

Status write_file_atomic(const std::string& path, ByteView bytes, mode_t mode) {
  static std::atomic<uint64_t> counter{0};
  const std::string temp =
      path + ".tmp." + std::to_string(::getpid()) + "." + std::to_string(counter.fetch_add(1));
  const auto write = [&]() -> Status {
    VARVE_ASSIGN(UniqueFd fd, open_file(temp, O_WRONLY | O_CREAT | O_EXCL, mode));
    VARVE_TRY(write_all(fd.get(), bytes));
    VARVE_TRY(fsync_fd(fd.get(), temp));
    VARVE_TRY(fd.close());
    if (::rename(temp.c_str(), path.c_str()) != 0) return fail_errno("renaming " + quoted(temp));
    return {};
  };
  if (auto status = write(); !status) {
    ::unlink(temp.c_str());
    return fail(std::move(status).error(), "writing " + quoted(path));
  }
  const size_t slash = path.rfind('/');
  return fsync_dir(slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash));
}

Result<UniqueFd> open_unlinked_temp(const std::string& directory) {
  auto fd = open_file(directory, O_RDWR | O_TMPFILE, 0600);
  if (fd || fd.error().errno_value() == ENOENT || fd.error().errno_value() == ENOTDIR) return fd;
  // Some filesystems (NFS, older overlayfs) have no O_TMPFILE.
  std::string name = directory + "/.varve-XXXXXX";
  const int named = ::mkostemp(name.data(), O_CLOEXEC);
  if (named < 0) return fail_errno("creating a temporary file in " + quoted(directory));
  ::unlink(name.c_str());
  return UniqueFd(named);
}

}  // namespace varve
