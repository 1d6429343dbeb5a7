#include "chunkstore/layer_pack/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/file_io.h"

namespace varve::layer_pack {
namespace {

constexpr size_t kBufferBytes = 1 << 20;

std::string directory_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

}  // namespace

Result<OutputFile> OutputFile::create(const std::string& path) {
  if (path == "-") {
    UniqueFd fd(::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0));
    if (!fd) return fail_errno("opening standard output");
    return OutputFile("standard output", "", std::move(fd));
  }
  struct stat status;
  if (::stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode)) {
    VARVE_ASSIGN(UniqueFd fd, open_file(path, O_WRONLY));
    return OutputFile(path, "", std::move(fd));
  }
  std::string temp_path = path + ".unfinished." + std::to_string(::getpid());
  VARVE_ASSIGN(UniqueFd fd, open_file(temp_path, O_WRONLY | O_CREAT | O_TRUNC, 0644));
  return OutputFile(path, std::move(temp_path), std::move(fd));
}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : path_(std::move(other.path_)),
      temp_path_(std::exchange(other.temp_path_, "")),
      fd_(std::move(other.fd_)),
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
  if (!temp_path_.empty() && count >= kBufferBytes) {
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

Status OutputFile::publish() {
  VARVE_TRY(flush());
  if (temp_path_.empty()) return fd_.close();
  VARVE_TRY(fsync_fd(fd_.get(), path_));
  VARVE_TRY(fd_.close());
  if (::rename(temp_path_.c_str(), path_.c_str()) != 0) {
    return fail_errno("renaming " + quoted(temp_path_) + " to " + quoted(path_));
  }
  temp_path_.clear();
  return fsync_dir(directory_of(path_));
}

}  // namespace varve::layer_pack
