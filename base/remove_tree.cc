#include "base/remove_tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <optional>

#include "base/bytes.h"
#include "base/unique_fd.h"

namespace varve {
namespace {

struct Entry {
  std::string name;
  bool is_directory;
};

/// A directory of the same mount, or an error.
Result<UniqueFd> open_below(int directory, const char* name) {
  open_how how{};
  how.flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
  how.resolve = RESOLVE_NO_XDEV;
  UniqueFd fd(static_cast<int>(::syscall(SYS_openat2, directory, name, &how, sizeof how)));
  if (!fd) return fail_errno("opening " + quoted(name));
  return fd;
}

/// Goes through a directory once, also while its entries are removed. Starting anew for each part
/// instead would take the square of its size: what is removed from a large directory leaves its
/// place there behind, and the kernel looks at all of those first.
class Listing {
 public:
  static Result<Listing> open(int directory) {
    const int copy = ::openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (copy < 0) return fail_errno("listing a directory");
    Listing listing(directory, ::fdopendir(copy));
    if (listing.stream_) return listing;
    ::close(copy);
    return fail_errno("listing a directory");
  }
  /// The next entry; nothing at the end. One at a time: there may be millions.
  Result<std::optional<Entry>> next() {
    for (;;) {
      errno = 0;
      const dirent* entry = ::readdir(stream_.get());
      if (entry == nullptr && errno != 0) return fail_errno("listing a directory");
      if (entry == nullptr) return std::nullopt;
      const std::string_view name = entry->d_name;
      if (name == "." || name == "..") continue;
      bool is_directory = entry->d_type == DT_DIR;
      if (entry->d_type == DT_UNKNOWN) {
        struct stat status;
        is_directory = ::fstatat(directory_, entry->d_name, &status, AT_SYMLINK_NOFOLLOW) == 0 &&
                       S_ISDIR(status.st_mode);
      }
      return Entry{std::string(name), is_directory};
    }
  }

 private:
  Listing(int directory, DIR* stream) : directory_(directory), stream_(stream, ::closedir) {}
  int directory_;
  std::unique_ptr<DIR, int (*)(DIR*)> stream_;
};

/// Removes an entry; false when it is a directory that cannot be removed as it is.
Result<bool> remove_entry(int directory, const Entry& entry) {
  if (::unlinkat(directory, entry.name.c_str(), entry.is_directory ? AT_REMOVEDIR : 0) == 0) {
    return true;
  }
  if (entry.is_directory) return false;
  return fail_errno("removing " + quoted(entry.name));
}

/// Empties `child`, moving its non-empty directories into `top` under fresh names.
Status empty_directory(int top, int child, uint64_t& counter) {
  VARVE_ASSIGN(Listing listing, Listing::open(child));
  for (;;) {
    VARVE_ASSIGN(const std::optional<Entry> entry, listing.next());
    if (!entry) return {};
    VARVE_ASSIGN(const bool is_removed, remove_entry(child, *entry));
    while (!is_removed) {
      const std::string moved = "\x01removing." + std::to_string(counter++);
      if (::renameat2(child, entry->name.c_str(), top, moved.c_str(), RENAME_NOREPLACE) == 0) break;
      if (errno != EEXIST) return fail_errno("moving " + quoted(entry->name));
    }
  }
}

/// Goes once through what is in `top`, and what is moved there meanwhile may come up or not.
/// @return whether anything was there.
Result<bool> remove_entries(int top, uint64_t& counter) {
  VARVE_ASSIGN(Listing listing, Listing::open(top));
  for (bool has_entries = false;; has_entries = true) {
    VARVE_ASSIGN(const std::optional<Entry> entry, listing.next());
    if (!entry) return has_entries;
    VARVE_ASSIGN(const bool is_removed, remove_entry(top, *entry));
    if (is_removed) continue;
    {
      VARVE_ASSIGN(const UniqueFd child, open_below(top, entry->name.c_str()));
      VARVE_TRY(empty_directory(top, child.get(), counter));
    }
    if (::unlinkat(top, entry->name.c_str(), AT_REMOVEDIR) != 0)
      return fail_errno("removing " + quoted(entry->name));
  }
}

}  // namespace

Status remove_tree_at(int directory, const std::string& path) {
  if (::unlinkat(directory, path.c_str(), AT_REMOVEDIR) == 0 || errno == ENOENT) return {};
  const UniqueFd top(
      ::openat(directory, path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!top) {
    if (errno == ENOENT) return {};
    return fail_errno("removing " + quoted(path));
  }
  uint64_t counter = 0;
  for (bool has_entries = true; has_entries;) {
    VARVE_ASSIGN(has_entries, remove_entries(top.get(), counter));
  }
  if (::unlinkat(directory, path.c_str(), AT_REMOVEDIR) != 0)
    return fail_errno("removing " + quoted(path));
  return {};
}

}  // namespace varve
