#include "chunkstore/store/file_store.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <utility>

#include "base/check.h"
#include "base/file_io.h"
#include "chunkstore/format/keys.h"
#include "chunkstore/format/lease.h"

namespace varve::chunkstore {
namespace {

constexpr std::string_view kTempDir = "tmp";
constexpr size_t kKeyBytesMax = 1024;
// A directory on the way to a key may be removed as empty by a collector just before the rename.
constexpr int kPublishAttemptsMax = 16;
// Objects are written in steps of this size.
constexpr size_t kWriteStepBytes = 1 << 20;

struct CloseDir {
  void operator()(DIR* dir) const { ::closedir(dir); }
};
using DirPtr = std::unique_ptr<DIR, CloseDir>;

std::string parent_of(std::string_view key) {
  const size_t slash = key.rfind('/');
  return slash == std::string_view::npos ? "." : std::string(key.substr(0, slash));
}

/// Keys become paths: no empty, "." or ".." component, no NUL, not in `tmp/`.
Status check_key(std::string_view key) {
  const auto invalid = [&] {
    return fail(ErrorCode::kInvalidArgument, quoted(key.substr(0, 200)) + " is not a key");
  };
  if (key.empty() || key.size() > kKeyBytesMax || key.find('\0') != std::string_view::npos) {
    return invalid();
  }
  if (key == kTempDir || key.starts_with("tmp/")) return invalid();
  for (size_t at = 0; at <= key.size();) {
    const size_t end = std::min(key.find('/', at), key.size());
    const std::string_view part = key.substr(at, end - at);
    if (part.empty() || part == "." || part == "..") return invalid();
    at = end + 1;
  }
  return {};
}

ObjectInfo info_of(const struct stat& status) {
  return {static_cast<uint64_t>(status.st_size), static_cast<int64_t>(status.st_mtime)};
}

/// Whether opening a file that the kernel has cached asks nobody else, as it does on filesystems of
/// a network or of another process.
bool is_local(int directory) {
  constexpr unsigned long kXfs = 0x58465342;
  struct statfs status;
  if (::fstatfs(directory, &status) != 0) return false;
  const auto type = static_cast<unsigned long>(status.f_type);
  return type == EXT4_SUPER_MAGIC || type == kXfs || type == BTRFS_SUPER_MAGIC ||
         type == TMPFS_MAGIC;
}

/// Opens what the kernel's cache leads to; empty when it would have to look elsewhere (or does not
/// know how not to, before Linux 5.12).
UniqueFd open_cached(int directory, const std::string& path, int flags, uint64_t resolve) {
  constexpr uint64_t kResolveCached = 0x20;  // RESOLVE_CACHED
  open_how how = {};
  how.flags = static_cast<uint64_t>(flags | O_CLOEXEC);
  how.resolve = resolve | kResolveCached;
  return UniqueFd(
      static_cast<int>(::syscall(SYS_openat2, directory, path.c_str(), &how, sizeof(how))));
}

/// As fstat(2) tells, but of what the kernel has cached.
bool is_same_directory(int a, int b) {
  struct statx of_a;
  struct statx of_b;
  constexpr int kFlags = AT_EMPTY_PATH | AT_STATX_DONT_SYNC;
  return ::statx(a, "", kFlags, STATX_INO, &of_a) == 0 &&
         ::statx(b, "", kFlags, STATX_INO, &of_b) == 0 && of_a.stx_ino == of_b.stx_ino &&
         of_a.stx_dev_major == of_b.stx_dev_major && of_a.stx_dev_minor == of_b.stx_dev_minor;
}

class FileStore : public Store {
 public:
  FileStore(std::string path, UniqueFd root, FileOps& ops)
      : path_(std::move(path)),
        url_("file://" + path_),
        root_(std::move(root)),
        is_local_(is_local(root_.get())),
        ops_(ops) {}

  Status make_or_check_marker(bool create);

  const std::string& url() const override { return url_; }
  const std::string& id() const override { return id_; }
  bool is_current() const override;
  Status get_range(std::string_view key, uint64_t offset, MutableByteView to,
                   Deadline deadline) override;
  Result<Bytes> get(std::string_view key, uint64_t bytes_max, Deadline deadline) override;
  std::optional<Bytes> get_at_once(std::string_view key, uint64_t bytes_max) override;
  Result<ObjectInfo> stat(std::string_view key, Deadline deadline) override;
  Result<bool> put_if_absent(std::string_view key, ByteView bytes, Deadline deadline) override;
  Status replace(std::string_view key, ByteView bytes, Deadline deadline) override;
  Result<std::unique_ptr<ObjectWriter>> create() override;
  Result<uint64_t> remove_stale_temporaries(int64_t age_s, Deadline deadline) override;
  Status list(std::string_view prefix,
              const std::function<Status(const std::string&, const ObjectInfo&)>& visit,
              Deadline deadline) override;
  Status remove(std::string_view key, Deadline deadline) override;
  Result<int64_t> now_s(Deadline deadline) override;

 private:
  friend class FileWriter;

  struct OpenObject {
    UniqueFd fd;
    struct stat status;
  };
  Result<OpenObject> open_object(std::string_view key) const;
  Status check_deadline(std::string_view key, Deadline deadline) const;
  Status make_parents(std::string_view key);
  /// Makes it durable that a file of `dir` is gone, also when `dir` goes meanwhile.
  Status sync_removal(std::string dir);
  /// Publishes a finished temporary file; false when `key` was there. The file is gone either way.
  Result<bool> publish(const std::string& temp, const std::string& key, bool over);
  Status list_dir(const std::string& dir, std::vector<std::string>& pending,
                  const std::function<Status(const std::string&, const ObjectInfo&)>& visit);
  std::string context(std::string_view verb, std::string_view key) const {
    return fmt::format("{} {} in store {}", verb, quoted(key), quoted(path_));
  }
  Result<int64_t> touch_marker();
  std::string temp_name();
  Result<UniqueFd> create_temp(const std::string& temp);

  std::string path_;
  std::string url_;
  std::string id_;
  UniqueFd root_;
  bool is_local_;
  FileOps& ops_;
};

/// A temporary file that becomes an object, or vanishes.
class FileWriter : public ObjectWriter {
 public:
  FileWriter(FileStore& store, std::string temp, UniqueFd fd)
      : store_(store), temp_(std::move(temp)), fd_(std::move(fd)) {}
  ~FileWriter() override {
    // Nobody is left to hear of a failure here; the collector removes what stays.
    if (!temp_.empty()) (void)store_.ops_.remove_file(store_.root_.get(), temp_);
  }

  Status write(ByteView bytes) override {
    while (!bytes.empty()) {
      const ByteView part = bytes.first(std::min(bytes.size(), kWriteStepBytes - buffered_));
      copy_bytes(part, buffer() + buffered_);
      buffered_ += part.size();
      bytes = bytes.subspan(part.size());
      if (buffered_ == kWriteStepBytes) VARVE_TRY(write_step());
    }
    return {};
  }

  Status publish(std::string_view key) override {
    VARVE_ASSIGN([[maybe_unused]] const bool created, publish(key, false));
    return {};
  }

  Result<bool> publish(std::string_view key, bool over) {
    VARVE_TRY(check_key(key));
    auto created = finish(std::string(key), over);
    if (!created) return fail(std::move(created).error(), store_.context("publishing", key));
    return created;
  }

 private:
  Result<bool> finish(const std::string& key, bool over) {
    if (is_direct_) VARVE_TRY(store_.ops_.set_direct(fd_.get(), false));
    VARVE_TRY(write_buffered());
    VARVE_TRY(store_.ops_.sync_file(fd_.get(), temp_));
    VARVE_TRY(fd_.close());
    VARVE_ASSIGN(const bool created, store_.publish(temp_, key, over));
    if (!created) VARVE_TRY(store_.ops_.remove_file(store_.root_.get(), temp_));
    temp_.clear();
    // Also when it was there: the one who made it may not have come this far yet.
    VARVE_TRY(store_.ops_.sync_dir(store_.root_.get(), parent_of(key)));
    return created;
  }

  uint8_t* buffer() {
    if (!buffer_)
      buffer_.reset(static_cast<uint8_t*>(std::aligned_alloc(kDirectAlignment, kWriteStepBytes)));
    VARVE_CHECK(buffer_ != nullptr);
    return buffer_.get();
  }

  /// Writes a full buffer. Past the page cache where that is possible: copying into it and
  /// cleaning it cost more than the write itself, and the fsync at the end has little left to do.
  Status write_step() {
    if (written_ == 0) is_direct_ = store_.ops_.set_direct(fd_.get(), true).has_value();
    auto status = write_buffered();
    if (!status && is_direct_ && status.error().errno_value() == EINVAL) {
      is_direct_ = false;
      VARVE_TRY(store_.ops_.set_direct(fd_.get(), false));
      // Some of it may have been written.
      if (::lseek(fd_.get(), static_cast<off_t>(written_), SEEK_SET) < 0)
        return fail_errno(store_.context("writing", temp_));
      status = write_buffered();
    }
    VARVE_TRY(std::move(status));
    if (!is_direct_) {
      // A hint; what it cannot do, fsync does.
      (void)::sync_file_range(fd_.get(), static_cast<off_t>(written_ - kWriteStepBytes),
                              static_cast<off_t>(kWriteStepBytes), SYNC_FILE_RANGE_WRITE);
    }
    return {};
  }

  Status write_buffered() {
    if (buffered_ == 0) return {};
    if (auto status = store_.ops_.write(fd_.get(), {buffer(), buffered_}); !status) {
      return fail(std::move(status).error(), store_.context("writing", temp_));
    }
    written_ += buffered_;
    buffered_ = 0;
    return {};
  }

  struct Free {
    void operator()(uint8_t* memory) const { std::free(memory); }
  };

  FileStore& store_;
  std::string temp_;
  UniqueFd fd_;
  std::unique_ptr<uint8_t, Free> buffer_;
  size_t buffered_ = 0;
  uint64_t written_ = 0;
  bool is_direct_ = false;
};

std::string FileStore::temp_name() {
  return std::string(kTempDir) + "/" + random_uuid();
}

Result<UniqueFd> FileStore::create_temp(const std::string& temp) {
  auto fd = ops_.create_file(root_.get(), temp);
  if (fd || fd.error().errno_value() != ENOENT) return fd;
  // A store that was copied may have come without an empty directory.
  VARVE_TRY(ops_.make_dir(root_.get(), std::string(kTempDir)));
  return ops_.create_file(root_.get(), temp);
}

Status FileStore::make_or_check_marker(bool create) {
  auto marker = get(kStoreMarkerKey, kStoreMarkerBytesMax, kNoDeadline);
  if (!marker && marker.error().code() == ErrorCode::kNotFound && create) {
    VARVE_TRY(list(
        "",
        [&](const std::string& key, const ObjectInfo&) {
          return Status(fail(
              ErrorCode::kInvalidArgument,
              fmt::format("directory {} is not a store and holds {}", quoted(path_), quoted(key))));
        },
        kNoDeadline));
    VARVE_TRY(ops_.make_dir(root_.get(), std::string(kTempDir)));
    VARVE_TRY(put_if_absent(kStoreMarkerKey, encode_store_marker({random_uuid()}), kNoDeadline));
    marker = get(kStoreMarkerKey, kStoreMarkerBytesMax, kNoDeadline);
  }
  if (!marker) {
    if (marker.error().code() != ErrorCode::kNotFound) return tl::unexpected(marker.error());
    return fail(ErrorCode::kNotFound, fmt::format("directory {} is not a store: it has no file {}",
                                                  quoted(path_), quoted(kStoreMarkerKey)));
  }
  auto parsed = parse_store_marker(*marker);
  if (!parsed) return fail(std::move(parsed).error(), context("reading", kStoreMarkerKey));
  id_ = parsed->id;
  return {};
}

// The open directory keeps its inode number from being given to another one.
bool FileStore::is_current() const {
  struct stat opened;
  struct stat named;
  return ::fstat(root_.get(), &opened) == 0 && ::stat(path_.c_str(), &named) == 0 &&
         opened.st_dev == named.st_dev && opened.st_ino == named.st_ino;
}

Status FileStore::check_deadline(std::string_view key, Deadline deadline) const {
  if (MonotonicClock::now() < deadline) return {};
  return fail(ErrorCode::kTimedOut, context("deadline passed before access to", key));
}

Result<FileStore::OpenObject> FileStore::open_object(std::string_view key) const {
  // O_NONBLOCK: a FIFO in the place of an object must not block.
  auto fd = open_beneath(root_.get(), std::string(key), O_RDONLY | O_NONBLOCK | O_NOCTTY);
  const int error = fd ? 0 : fd.error().errno_value();
  // A symbolic link, or a socket: something is there that may hide an object.
  if (error == ELOOP || error == ENXIO)
    return fail(ErrorCode::kCorruption, context("not a regular file:", key));
  if (!fd) {
    return fail(std::move(fd).error(), fmt::format("store {}", quoted(path_)));
  }
  OpenObject object{std::move(*fd), {}};
  if (::fstat(object.fd.get(), &object.status) != 0) return fail_errno(context("inspecting", key));
  if (!S_ISREG(object.status.st_mode)) {
    return fail(S_ISDIR(object.status.st_mode) ? ErrorCode::kNotFound : ErrorCode::kCorruption,
                context("not a regular file:", key));
  }
  return object;
}

Status FileStore::get_range(std::string_view key, uint64_t offset, MutableByteView to,
                            Deadline deadline) {
  VARVE_TRY(check_key(key));
  VARVE_TRY(check_deadline(key, deadline));
  VARVE_ASSIGN(const OpenObject object, open_object(key));
  const auto size = static_cast<uint64_t>(object.status.st_size);
  if (offset > size || to.size() > size - offset) {
    return fail(ErrorCode::kCorruption,
                fmt::format("{}: has {} bytes, {} wanted from offset {}", context("reading", key),
                            size, to.size(), offset));
  }
  if (auto status = pread_exact(object.fd.get(), offset, to); !status) {
    return fail(std::move(status).error(), context("reading", key));
  }
  return {};
}

Result<Bytes> FileStore::get(std::string_view key, uint64_t bytes_max, Deadline deadline) {
  VARVE_TRY(check_key(key));
  VARVE_TRY(check_deadline(key, deadline));
  VARVE_ASSIGN(const OpenObject object, open_object(key));
  const auto size = static_cast<uint64_t>(object.status.st_size);
  if (size > bytes_max) {
    return fail(ErrorCode::kCorruption, fmt::format("{}: has {} bytes, more than the {} allowed",
                                                    context("reading", key), size, bytes_max));
  }
  Bytes bytes(size);
  if (auto status = pread_exact(object.fd.get(), 0, bytes); !status) {
    return fail(std::move(status).error(), context("reading", key));
  }
  return bytes;
}

std::optional<Bytes> FileStore::get_at_once(std::string_view key, uint64_t bytes_max) {
  if (!is_local_ || !check_key(key)) return std::nullopt;
  const UniqueFd named = open_cached(AT_FDCWD, path_, O_PATH | O_DIRECTORY, 0);
  if (!named || !is_same_directory(named.get(), root_.get())) return std::nullopt;
  const UniqueFd fd = open_cached(root_.get(), std::string(key), O_RDONLY | O_NONBLOCK | O_NOCTTY,
                                  RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV);
  struct stat status;
  if (!fd || ::fstat(fd.get(), &status) != 0 || !S_ISREG(status.st_mode) ||
      static_cast<uint64_t>(status.st_size) > bytes_max) {
    return std::nullopt;
  }
  Bytes bytes(static_cast<size_t>(status.st_size));
  iovec part{bytes.data(), bytes.size()};
  const ssize_t size = ::preadv2(fd.get(), &part, 1, 0, RWF_NOWAIT);
  if (size < 0 || static_cast<size_t>(size) != bytes.size()) return std::nullopt;
  return bytes;
}

Result<ObjectInfo> FileStore::stat(std::string_view key, Deadline deadline) {
  VARVE_TRY(check_key(key));
  VARVE_TRY(check_deadline(key, deadline));
  VARVE_ASSIGN(const OpenObject object, open_object(key));
  return info_of(object.status);
}

Status FileStore::make_parents(std::string_view key) {
  for (size_t slash = key.find('/'); slash != std::string_view::npos;
       slash = key.find('/', slash + 1)) {
    const std::string dir(key.substr(0, slash));
    VARVE_ASSIGN(const bool created, ops_.make_dir(root_.get(), dir));
    if (created) VARVE_TRY(ops_.sync_dir(root_.get(), parent_of(dir)));
  }
  return {};
}

Result<bool> FileStore::publish(const std::string& temp, const std::string& key, bool over) {
  for (int attempt = 1;; ++attempt) {
    if (auto parents = make_parents(key); !parents) {
      if (parents.error().errno_value() != ENOENT || attempt == kPublishAttemptsMax) {
        return tl::unexpected(std::move(parents).error());
      }
      continue;
    }
    Result<bool> created = true;
    if (over) {
      auto status = ops_.rename_over(root_.get(), temp, key);
      if (!status) created = tl::unexpected(std::move(status).error());
    } else {
      created = ops_.rename_if_absent(root_.get(), temp, key);
    }
    if (created || created.error().errno_value() != ENOENT || attempt == kPublishAttemptsMax) {
      return created;
    }
  }
}

Result<std::unique_ptr<ObjectWriter>> FileStore::create() {
  std::string temp = temp_name();
  auto fd = create_temp(temp);
  if (!fd) return fail(std::move(fd).error(), fmt::format("store {}", quoted(path_)));
  return std::make_unique<FileWriter>(*this, std::move(temp), std::move(*fd));
}

Result<bool> FileStore::put_if_absent(std::string_view key, ByteView bytes, Deadline deadline) {
  VARVE_TRY(check_key(key));
  VARVE_TRY(check_deadline(key, deadline));
  VARVE_ASSIGN(const auto writer, create());
  VARVE_TRY(writer->write(bytes));
  return static_cast<FileWriter&>(*writer).publish(key, false);
}

Status FileStore::replace(std::string_view key, ByteView bytes, Deadline deadline) {
  VARVE_TRY(check_key(key));
  VARVE_TRY(check_deadline(key, deadline));
  VARVE_ASSIGN(const auto writer, create());
  VARVE_TRY(writer->write(bytes));
  VARVE_TRY(static_cast<FileWriter&>(*writer).publish(key, true));
  return {};
}

Result<uint64_t> FileStore::remove_stale_temporaries(int64_t age_s, Deadline deadline) {
  VARVE_ASSIGN(const int64_t now, now_s(deadline));
  uint64_t removed_count = 0;
  const auto remove_if_stale = [&](const std::string& path, const ObjectInfo& info) -> Status {
    if (now - info.modified_s < age_s) return {};
    const Status removed = ops_.remove_file(root_.get(), path);
    if (removed) ++removed_count;
    return removed || removed.error().code() == ErrorCode::kNotFound ? Status() : removed;
  };
  std::vector<std::string> pending;
  VARVE_TRY(list_dir(std::string(kTempDir), pending, remove_if_stale));
  return removed_count;
}

Status FileStore::list(std::string_view prefix,
                       const std::function<Status(const std::string&, const ObjectInfo&)>& visit,
                       Deadline deadline) {
  std::vector<std::string> pending;
  if (prefix.empty()) {
    pending.emplace_back();
  } else {
    if (prefix.back() != '/') {
      return fail(ErrorCode::kInvalidArgument, quoted(prefix) + " does not end in '/'");
    }
    VARVE_TRY(check_key(prefix.substr(0, prefix.size() - 1)));
    pending.emplace_back(prefix.substr(0, prefix.size() - 1));
  }
  while (!pending.empty()) {
    const std::string dir = std::move(pending.back());
    pending.pop_back();
    VARVE_TRY(check_deadline(dir, deadline));
    VARVE_TRY(list_dir(dir, pending, visit));
  }
  return {};
}

Status FileStore::list_dir(
    const std::string& dir, std::vector<std::string>& pending,
    const std::function<Status(const std::string&, const ObjectInfo&)>& visit) {
  auto fd = open_beneath(root_.get(), dir.empty() ? "." : dir, O_RDONLY | O_DIRECTORY);
  if (!fd) {
    // Removed since its parent was read, or never made: nothing in it.
    if (fd.error().code() == ErrorCode::kNotFound) return {};
    return fail(std::move(fd).error(), fmt::format("store {}", quoted(path_)));
  }
  DirPtr stream(::fdopendir(fd->get()));
  if (!stream) return fail_errno(context("listing", dir));
  (void)fd->release();
  for (;;) {
    errno = 0;
    const dirent* entry = ::readdir(stream.get());
    if (entry == nullptr) {
      if (errno != 0) return fail_errno(context("listing", dir));
      return {};
    }
    const std::string_view name = entry->d_name;
    if (name == "." || name == ".." || (dir.empty() && name == kTempDir)) continue;
    std::string key = dir.empty() ? std::string(name) : dir + "/" + entry->d_name;
    struct stat status;
    if (::fstatat(::dirfd(stream.get()), entry->d_name, &status, AT_SYMLINK_NOFOLLOW) != 0) {
      if (errno == ENOENT) continue;
      return fail_errno(context("inspecting", key));
    }
    if (S_ISDIR(status.st_mode)) {
      if (key.size() < kKeyBytesMax) pending.push_back(std::move(key));
    } else {
      // Also what is no regular file: whoever passed over it in silence, would take a name for
      // removed that somebody made a symbolic link. It cannot be read.
      VARVE_TRY(visit(key, info_of(status)));
    }
  }
}

Status FileStore::sync_removal(std::string dir) {
  for (;;) {
    auto status = ops_.sync_dir(root_.get(), dir);
    if (status || status.error().errno_value() != ENOENT || dir == ".") return status;
    dir = parent_of(dir);
  }
}

Status FileStore::remove(std::string_view key, Deadline deadline) {
  VARVE_TRY(check_key(key));
  VARVE_TRY(check_deadline(key, deadline));
  if (auto status = ops_.remove_file(root_.get(), std::string(key)); !status) {
    return fail(std::move(status).error(), fmt::format("store {}", quoted(path_)));
  }
  std::string dir = parent_of(key);
  if (auto status = sync_removal(dir); !status) {
    return fail(std::move(status).error(), context("removing", key));
  }
  // Directories below the top ones go with their last object. Should a crash bring an empty one
  // back, it harms nobody.
  while (dir.find('/') != std::string::npos) {
    VARVE_ASSIGN(const bool removed, ops_.remove_dir(root_.get(), dir));
    if (!removed) break;
    dir = parent_of(dir);
  }
  return {};
}

Result<int64_t> FileStore::now_s(Deadline deadline) {
  VARVE_TRY(check_deadline("clock", deadline));
  // The time that the filesystem gives a new file: the server's, on a cluster filesystem.
  const std::string temp = temp_name();
  auto fd = create_temp(temp);
  if (!fd && fd.error().code() == ErrorCode::kNoSpace) return touch_marker();
  if (!fd) return tl::unexpected(std::move(fd).error());
  struct stat status;
  const int stat_result = ::fstat(fd->get(), &status);
  const int stat_errno = errno;
  VARVE_TRY(ops_.remove_file(root_.get(), temp));
  if (stat_result != 0) return fail_errno(stat_errno, context("inspecting", temp));
  return static_cast<int64_t>(status.st_mtime);
}

/// The same where a full disk holds no new file: the collector has to know the time to make room.
Result<int64_t> FileStore::touch_marker() {
  VARVE_ASSIGN(const OpenObject marker, open_object(kStoreMarkerKey));
  struct stat status;
  if (::futimens(marker.fd.get(), nullptr) != 0 || ::fstat(marker.fd.get(), &status) != 0) {
    return fail_errno(context("touching", kStoreMarkerKey));
  }
  return static_cast<int64_t>(status.st_mtime);
}

}  // namespace

Result<std::shared_ptr<Store>> open_file_store(const std::string& path, bool create, FileOps& ops) {
  if (create) VARVE_TRY(make_directories(path));
  auto root = open_file(path, O_RDONLY | O_DIRECTORY);
  if (!root) return fail(std::move(root).error(), "opening a store");
  auto store = std::make_shared<FileStore>(path, std::move(*root), ops);
  VARVE_TRY(store->make_or_check_marker(create));
  return store;
}

Result<std::shared_ptr<Store>> open_store(const std::string& url, bool create) {
  constexpr std::string_view kFileScheme = "file://";
  // The kernel would see what stands before it.
  if (url.find('\0') != std::string::npos) {
    return fail(ErrorCode::kInvalidArgument, "there is a NUL in " + quoted(url));
  }
  if (url.starts_with("/")) return open_file_store(url, create);
  if (url.starts_with(kFileScheme)) {
    const std::string path = url.substr(kFileScheme.size());
    if (path.starts_with("/")) return open_file_store(path, create);
    return fail(ErrorCode::kInvalidArgument,
                quoted(url) + " has no absolute path: write file:///directory");
  }
  if (url.find("://") != std::string::npos) {
    return fail(ErrorCode::kUnsupported,
                "no engine for " + quoted(url) + ": this program knows file:// stores");
  }
  return fail(ErrorCode::kInvalidArgument,
              quoted(url) + " is neither an absolute path nor a file:// URL");
}

}  // namespace varve::chunkstore
