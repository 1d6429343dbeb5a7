#include "tests/support/crash_file_ops.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/file_io.h"

namespace varve::test {
namespace {

std::string parent_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash);
}

}  // namespace

CrashFileOps::CrashFileOps(int root_fd, uint64_t step, int errno_value)
    : root_fd_(root_fd), crash_step_(step), errno_value_(errno_value) {}

uint64_t CrashFileOps::step_count() const {
  std::lock_guard lock(mutex_);
  return step_count_;
}

bool CrashFileOps::crashed() const {
  std::lock_guard lock(mutex_);
  return crashed_;
}

Status CrashFileOps::step(bool adds_data, std::string_view what) {
  ++step_count_;
  if (step_count_ == crash_step_) crashed_ = true;
  if (crashed_ && (adds_data || errno_value_ != ENOSPC)) {
    return fail_errno(errno_value_, std::string(what));
  }
  return {};
}

void CrashFileOps::remember(const std::string& path, std::function<void()> undo) {
  pending_.push_back({parent_of(path), std::move(undo)});
}

std::optional<Bytes> CrashFileOps::content_of(const std::string& path) const {
  auto fd = open_file_at(root_fd_, path, O_RDONLY);
  if (!fd) return std::nullopt;
  struct stat status;
  if (::fstat(fd->get(), &status) != 0) return std::nullopt;
  Bytes bytes(static_cast<size_t>(status.st_size));
  if (!pread_exact(fd->get(), 0, bytes)) return std::nullopt;
  return bytes;
}

void CrashFileOps::restore(const std::string& path, const std::optional<Bytes>& content) {
  ::unlinkat(root_fd_, path.c_str(), 0);
  if (!content) return;
  if (auto fd = open_file_at(root_fd_, path, O_WRONLY | O_CREAT | O_TRUNC)) {
    (void)write_all(fd->get(), *content);
  }
}

void CrashFileOps::lose_unsynced() {
  std::lock_guard lock(mutex_);
  for (const std::string& path : unsynced_) {
    if (auto fd = open_file_at(root_fd_, path, O_WRONLY)) (void)!::ftruncate(fd->get(), 0);
  }
  for (auto change = pending_.rbegin(); change != pending_.rend(); ++change) change->undo();
  pending_.clear();
}

Result<UniqueFd> CrashFileOps::create_file(int root_fd, const std::string& path) {
  std::lock_guard lock(mutex_);
  VARVE_TRY(step(true, "creating " + path));
  VARVE_ASSIGN(UniqueFd fd, FileOps::create_file(root_fd, path));
  open_paths_[fd.get()] = path;
  unsynced_.insert(path);
  remember(path, [this, path] { ::unlinkat(root_fd_, path.c_str(), 0); });
  return fd;
}

Status CrashFileOps::write(int fd, ByteView bytes) {
  std::lock_guard lock(mutex_);
  unsynced_.insert(open_paths_[fd]);
  if (auto status = step(true, "writing"); !status) {
    // A write that is cut has often written a part.
    (void)FileOps::write(fd, bytes.first(bytes.size() / 2));
    return status;
  }
  return FileOps::write(fd, bytes);
}

Status CrashFileOps::sync_file(int fd, const std::string& path) {
  std::lock_guard lock(mutex_);
  VARVE_TRY(step(true, "syncing " + path));
  VARVE_TRY(FileOps::sync_file(fd, path));
  unsynced_.erase(path);
  return {};
}

Result<bool> CrashFileOps::make_dir(int root_fd, const std::string& path) {
  std::lock_guard lock(mutex_);
  VARVE_TRY(step(true, "creating directory " + path));
  VARVE_ASSIGN(const bool created, FileOps::make_dir(root_fd, path));
  if (created) {
    remember(path, [this, path] { ::unlinkat(root_fd_, path.c_str(), AT_REMOVEDIR); });
  }
  return created;
}

Result<bool> CrashFileOps::rename_if_absent(int root_fd, const std::string& from,
                                            const std::string& to) {
  std::lock_guard lock(mutex_);
  VARVE_TRY(step(true, "renaming to " + to));
  VARVE_ASSIGN(const bool created, FileOps::rename_if_absent(root_fd, from, to));
  if (created) {
    if (unsynced_.erase(from) != 0) unsynced_.insert(to);
    remember(to, [this, from, to] { ::renameat(root_fd_, to.c_str(), root_fd_, from.c_str()); });
  }
  return created;
}

Status CrashFileOps::rename_over(int root_fd, const std::string& from, const std::string& to) {
  std::lock_guard lock(mutex_);
  VARVE_TRY(step(true, "renaming to " + to));
  const auto old_content = content_of(to);
  VARVE_TRY(FileOps::rename_over(root_fd, from, to));
  if (unsynced_.erase(from) != 0) unsynced_.insert(to);
  remember(to, [this, from, to, old_content] {
    ::renameat(root_fd_, to.c_str(), root_fd_, from.c_str());
    restore(to, old_content);
  });
  return {};
}

Status CrashFileOps::remove_file(int root_fd, const std::string& path) {
  std::lock_guard lock(mutex_);
  VARVE_TRY(step(false, "removing " + path));
  const auto old_content = content_of(path);
  VARVE_TRY(FileOps::remove_file(root_fd, path));
  unsynced_.erase(path);
  remember(path, [this, path, old_content] { restore(path, old_content); });
  return {};
}

Result<bool> CrashFileOps::remove_dir(int root_fd, const std::string& path) {
  std::lock_guard lock(mutex_);
  VARVE_TRY(step(false, "removing directory " + path));
  VARVE_ASSIGN(const bool removed, FileOps::remove_dir(root_fd, path));
  if (removed) remember(path, [this, path] { ::mkdirat(root_fd_, path.c_str(), 0755); });
  return removed;
}

Status CrashFileOps::sync_dir(int root_fd, const std::string& path) {
  std::lock_guard lock(mutex_);
  VARVE_TRY(step(true, "syncing directory " + path));
  VARVE_TRY(FileOps::sync_dir(root_fd, path));
  std::erase_if(pending_, [&](const Pending& change) { return change.dir == path; });
  return {};
}

}  // namespace varve::test
