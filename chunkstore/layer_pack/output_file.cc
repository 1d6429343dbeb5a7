#include "chunkstore/layer_pack/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <utility>

#include "base/file_io.h"
#include "chunkstore/format/lease.h"

namespace varve::layer_pack {
namespace {

constexpr size_t kBufferBytes = 1 << 20;

std::string directory_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

std::string temp_path_in(const std::string& directory) {
  return directory + "/.varve-" + chunkstore::random_uuid();
}

}  // namespace

Result<OutputFile> OutputFile::create(const std::string& wanted_path) {
  if (wanted_path == "-") {
    UniqueFd fd(::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0));
    if (!fd) return fail_errno("opening standard output");
    return OutputFile("standard output", "", std::move(fd));
  }
  std::string path = wanted_path;
  struct stat status;
  if (::stat(path.c_str(), &status) == 0) {
    if (!S_ISREG(status.st_mode)) {
      VARVE_ASSIGN(UniqueFd fd, open_file(path, O_WRONLY));
      return OutputFile(path, "", std::move(fd));
    }
    // What a symlink leads to is replaced and not the symlink, which may be /dev/stdout.
    char real_path[PATH_MAX];
    if (::realpath(path.c_str(), real_path) == nullptr) return fail_errno(quoted(path));
    path = real_path;
  }
  const std::string directory = directory_of(path);
  auto fd = open_file(directory, O_WRONLY | O_TMPFILE, 0644);
  if (fd) return OutputFile(path, "", std::move(*fd), /*is_unnamed=*/true);
  // Some filesystems (NFS, older overlayfs) have no O_TMPFILE.
  const int error = fd.error().errno_value();
  if (error != EOPNOTSUPP && error != EISDIR && error != EINVAL)
    return fail(std::move(fd).error(), quoted(path));
  std::string temp_path = temp_path_in(directory);
  VARVE_ASSIGN(fd, open_file(temp_path, O_WRONLY | O_CREAT | O_EXCL, 0644));
  return OutputFile(path, std::move(temp_path), std::move(*fd));
}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : path_(std::move(other.path_)),
      temp_path_(std::exchange(other.temp_path_, "")),
      fd_(std::move(other.fd_)),
      is_unnamed_(other.is_unnamed_),
      buffer_(std::move(other.buffer_)),
      size_(other.size_) {}

OutputFile::~OutputFile() {
  if (!temp_path_.empty()) ::unlink(temp_path_.c_str());
}

Status OutputFile::flush() {
  if (auto status = write_all(fd_.get(), buffer_); !status) {
    return fail(std::move(status).error(), quoted(path_));
  }
  size_ += buffer_.size();
  buffer_.clear();
  return {};
}

Status OutputFile::write(ByteView bytes) {
  append(buffer_, bytes);
  return buffer_.size() >= kBufferBytes ? flush() : Status{};
}

Status OutputFile::write_zeros(uint64_t count) {
  if ((is_unnamed_ || !temp_path_.empty()) && count >= kBufferBytes) {
    VARVE_TRY(flush());
    size_ += count;
    if (::ftruncate(fd_.get(), static_cast<off_t>(size_)) != 0 ||
        ::lseek(fd_.get(), static_cast<off_t>(size_), SEEK_SET) < 0) {
      return fail_errno(quoted(path_));
    }
    return {};
  }
  while (count > 0) {
    const size_t step = std::min<uint64_t>(count, kBufferBytes);
    buffer_.resize(buffer_.size() + step);
    count -= step;
    if (buffer_.size() >= kBufferBytes) VARVE_TRY(flush());
  }
  return {};
}

/// The file's own name, or where that is taken, one to rename from.
Status OutputFile::give_name() {
  const std::string unnamed = "/proc/self/fd/" + std::to_string(fd_.get());
  const auto link_to = [&](const std::string& name) {
    return ::linkat(AT_FDCWD, unnamed.c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) == 0;
  };
  if (link_to(path_)) return {};
  std::string temp_path = temp_path_in(directory_of(path_));
  if (errno != EEXIST || !link_to(temp_path)) return fail_errno("naming " + quoted(path_));
  temp_path_ = std::move(temp_path);
  return {};
}

Status OutputFile::publish() {
  VARVE_TRY(flush());
  if (!is_unnamed_ && temp_path_.empty()) return fd_.close();
  VARVE_TRY(fsync_fd(fd_.get(), path_));
  if (is_unnamed_) VARVE_TRY(give_name());
  VARVE_TRY(fd_.close());
  if (temp_path_.empty()) return fsync_dir(directory_of(path_));
  if (::rename(temp_path_.c_str(), path_.c_str()) != 0) {
    return fail_errno("renaming " + quoted(temp_path_) + " to " + quoted(path_));
  }
  temp_path_.clear();
  return fsync_dir(directory_of(path_));
}

}  // namespace varve::layer_pack
