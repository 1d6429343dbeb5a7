#include "chunkstore/source/directory_source.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/file_io.h"
#include "chunkstore/source/archive_path.h"
#include "chunkstore/source/beneath.h"
#include "chunkstore/source/deferred_file.h"
#include "chunkstore/source/overlay_upper.h"
#include "chunkstore/source/walk_queue.h"

namespace varve::chunkstore {
namespace {

constexpr size_t kBatchEntryCount = 256;

struct DirCloser {
  void operator()(DIR* stream) const { ::closedir(stream); }
};

Result<std::string> read_link_at(int directory_fd, const char* name) {
  std::string target(kLinkTargetBytesMax + 1, '\0');
  const ssize_t size = ::readlinkat(directory_fd, name, target.data(), target.size());
  if (size < 0) return fail_errno("reading the link");
  if (static_cast<size_t>(size) > kLinkTargetBytesMax) {
    return fail(ErrorCode::kInvalidArgument, "symlink target is longer than 4095 bytes");
  }
  target.resize(static_cast<size_t>(size));
  return target;
}

/// Calls a size-then-fill system call (`call(buffer, size)`) until the value fits.
template <class Call>
Result<std::string> read_growing(Call call) {
  std::string buffer(256, '\0');
  for (;;) {
    ssize_t size = call(buffer.data(), buffer.size());
    if (size >= 0) {
      buffer.resize(static_cast<size_t>(size));
      return buffer;
    }
    if (errno != ERANGE) return fail_errno("");
    size = call(nullptr, 0);
    if (size < 0) return fail_errno("");
    buffer.resize(static_cast<size_t>(size) + 1);
  }
}

/// listxattrat(2) of Linux 6.13, which this C library does not know; ENOSYS before.
ssize_t list_xattrs_at(int directory_fd, const char* name, unsigned flags, char* to, size_t size) {
  constexpr long kListXattrAt = 465;
  return ::syscall(kListXattrAt, directory_fd, name, flags, to, size);
}

/// Most files have no attribute, so that it is the call that finds none that has to be fast: with
/// listxattrat() it takes half the time of walking through /proc.
bool has_list_xattrs_at(int directory_fd) {
  return list_xattrs_at(directory_fd, "", AT_EMPTY_PATH, nullptr, 0) >= 0;
}

/// @param name          In the directory, or "" for itself: a symlink is not followed.
/// @param has_at_calls  What has_list_xattrs_at() says.
Result<std::map<std::string, std::string>> read_xattrs(int directory_fd, const char* name,
                                                       bool has_at_calls) {
  std::map<std::string, std::string> xattrs;
  const bool is_self = *name == '\0';
  // "/." makes the kernel resolve the descriptor's link; a name in it is never followed itself.
  const auto proc_path = [&] {
    return "/proc/self/fd/" + std::to_string(directory_fd) + "/" + (is_self ? "." : name);
  };
  const std::string listed_path = has_at_calls ? "" : proc_path();
  const auto names = read_growing([&](char* to, size_t size) {
    if (!has_at_calls) return ::llistxattr(listed_path.c_str(), to, size);
    return list_xattrs_at(directory_fd, name, is_self ? AT_EMPTY_PATH : AT_SYMLINK_NOFOLLOW, to,
                          size);
  });
  if (!names) {
    if (names.error().errno_value() == EOPNOTSUPP) return xattrs;
    return fail(names.error(), "listing extended attributes");
  }
  if (names->empty()) return xattrs;
  const std::string path = proc_path();
  for (size_t start = 0; start < names->size();) {
    const std::string xattr = names->c_str() + start;
    start += xattr.size() + 1;
    auto value = read_growing(
        [&](char* to, size_t size) { return ::lgetxattr(path.c_str(), xattr.c_str(), to, size); });
    if (!value) {
      return fail(std::move(value).error(), "reading extended attribute " + quoted(xattr));
    }
    xattrs.emplace(xattr, std::move(*value));
  }
  return xattrs;
}

class DirectorySource final : public EntrySource {
 public:
  DirectorySource(UniqueFd root, std::string name, const DirectoryOptions& options)
      : root_(std::make_shared<const UniqueFd>(std::move(root))),
        name_(std::move(name)),
        options_(options),
        has_list_xattrs_at_(options.allow_list_xattrs_at && has_list_xattrs_at(root_->get())),
        content_(std::make_shared<DirectoryContent>(root_, name_)),
        links_(options.temp_directory) {}

  Status read_into(EntrySink& sink) override {
    WalkQueue queue([this](const std::string& directory,
                           WalkQueue& to) { return list_directory(directory, to); },
                    options_.temp_directory);
    // Declared after the queue, so that a failed add() joins the threads before it goes.
    queue.start(options_.thread_count);
    for (;;) {
      VARVE_ASSIGN(std::optional<std::vector<WalkedEntry>> batch, queue.take());
      if (!batch) return {};
      for (WalkedEntry& walked : *batch) VARVE_TRY(add(std::move(walked), sink));
    }
  }

 private:
  /// Lists one directory, adds its entries and queues its subdirectories. Runs on a walker thread.
  Status list_directory(const std::string& directory, WalkQueue& to) const {
    auto status = list_open_directory(directory, to);
    if (!status) {
      return fail(std::move(status).error(), "packing " + quoted(join_path(name_, directory)));
    }
    return {};
  }

  Status list_open_directory(const std::string& directory, WalkQueue& to) const {
    VARVE_ASSIGN(UniqueFd fd, open_beneath(root_->get(), directory, O_RDONLY | O_DIRECTORY));
    const std::unique_ptr<DIR, DirCloser> stream(::fdopendir(fd.get()));
    if (!stream) return fail_errno("listing");
    const int directory_fd = fd.release();
    std::vector<WalkedEntry> batch;
    if (directory.empty()) VARVE_TRY(inspect(directory_fd, directory, "", batch));
    for (;;) {
      errno = 0;
      const dirent* const found = ::readdir(stream.get());
      if (found == nullptr) break;
      const std::string_view name = found->d_name;
      if (name == "." || name == "..") continue;
      auto type = inspect(directory_fd, directory, found->d_name, batch);
      if (!type) return fail(std::move(type).error(), quoted(name));
      if (*type == EntryType::kDirectory) VARVE_TRY(to.push_directory(join_path(directory, name)));
      if (batch.size() >= kBatchEntryCount) {
        if (!to.put(std::exchange(batch, {}))) return {};
      }
    }
    if (errno != 0) return fail_errno("listing");
    to.put(std::move(batch));
    return {};
  }

  /// Appends what `name` in `directory` is ("" = the directory itself, the root); returns its type.
  Result<EntryType> inspect(int directory_fd, const std::string& directory, const char* name,
                            std::vector<WalkedEntry>& batch) const {
    const bool is_root = *name == '\0';
    struct statx status;
    const int flags = AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT | (is_root ? AT_EMPTY_PATH : 0);
    if (::statx(directory_fd, name, flags, STATX_BASIC_STATS, &status) != 0) {
      return fail_errno("inspecting");
    }
    WalkedEntry walked;
    Entry& entry = walked.entry;
    const auto type = entry_type_of_mode(status.stx_mode);
    if (!type) return fail(ErrorCode::kUnsupported, "unknown file type");
    entry.path = join_path(directory, name);
    entry.type = *type;
    entry.mode = status.stx_mode & 07777;
    entry.uid = status.stx_uid;
    entry.gid = status.stx_gid;
    entry.mtime_s = status.stx_mtime.tv_sec;
    entry.mtime_ns = status.stx_mtime.tv_nsec;
    entry.rdev_major = status.stx_rdev_major;
    entry.rdev_minor = status.stx_rdev_minor;
    if (entry.type == EntryType::kSymlink) {
      VARVE_ASSIGN(entry.target, read_link_at(directory_fd, name));
    }
    VARVE_ASSIGN(entry.xattrs, read_xattrs(directory_fd, name, has_list_xattrs_at_));
    if (entry.type == EntryType::kRegular && status.stx_size > 0) {
      entry.size = status.stx_size;
      entry.deferred = content_;
      entry.deferred_key = deferred_file_key(entry.path, status);
    }
    if (entry.type != EntryType::kDirectory && status.stx_nlink > 1) {
      walked.inode = {.device = makedev(status.stx_dev_major, status.stx_dev_minor),
                      .number = status.stx_ino,
                      .link_count = status.stx_nlink};
    }
    VARVE_TRY(append_marked(std::move(walked), batch));
    return *type;
  }

  Status append_marked(WalkedEntry walked, std::vector<WalkedEntry>& batch) const {
    if (options_.mode == DirectoryMode::kPlain) {
      if (is_whiteout_device(walked.entry)) {
        return fail(ErrorCode::kInvalidArgument,
                    "character device 0:0 is an overlayfs whiteout, not content (an upper "
                    "directory is packed by 'layer-pack diff')");
      }
      batch.push_back(std::move(walked));
      return {};
    }
    VARVE_ASSIGN(const bool is_opaque, apply_upper_marks(walked.entry, options_.has_user_marks));
    // Overlayfs makes whiteouts as hard links of one device.
    if (walked.entry.type == EntryType::kWhiteout) walked.inode = {};
    WalkedEntry mark;
    mark.entry.type = EntryType::kOpaque;
    mark.entry.path = walked.entry.path;
    batch.push_back(std::move(walked));
    if (is_opaque) batch.push_back(std::move(mark));
    return {};
  }

  Status add(WalkedEntry walked, EntrySink& sink) {
    if (walked.inode.number == 0) return sink.add(std::move(walked.entry));
    VARVE_ASSIGN(std::optional<std::string> first_name,
                 links_.add_name(walked.inode, walked.entry.path));
    if (!first_name) return sink.add(std::move(walked.entry));
    Entry link;
    link.type = EntryType::kHardLink;
    link.path = std::move(walked.entry.path);
    link.target = std::move(*first_name);
    return sink.add(std::move(link));
  }

  const std::shared_ptr<const UniqueFd> root_;
  const std::string name_;
  const DirectoryOptions options_;
  const bool has_list_xattrs_at_;
  const std::shared_ptr<const DirectoryContent> content_;
  LinkTable links_;
};

}  // namespace

Result<std::unique_ptr<EntrySource>> open_directory_source(const std::string& path,
                                                           const DirectoryOptions& options) {
  VARVE_CHECK_OP(options.thread_count, >, size_t{0});
  VARVE_ASSIGN(UniqueFd root, open_file(path, O_RDONLY | O_DIRECTORY));
  return std::unique_ptr<EntrySource>(
      std::make_unique<DirectorySource>(std::move(root), path, options));
}

}  // namespace varve::chunkstore
