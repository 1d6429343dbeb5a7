#include "base/remove_tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <vector>

#include "base/bytes.h"
#include "base/unique_fd.h"

namespace varve {
namespace {

// A directory may hold millions of entries: so many are listed at a time.
constexpr size_t kListedCountMax = 4096;

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
  /// The next entries: kListedCountMax, or fewer at the end.
  Result<std::vector<Entry>> next() {
    std::vector<Entry> entries;
    while (entries.size() < kListedCountMax) {
      errno = 0;
      const dirent* entry = ::readdir(stream_.get());
      if (entry == nullptr && errno != 0) return fail_errno("listing a directory");
      if (entry == nullptr) break;
      const std::string_view name = entry->d_name;
      if (name == "." || name == "..") continue;
      bool is_directory = entry->d_type == DT_DIR;
      if (entry->d_type == DT_UNKNOWN) {
        struct stat status;
        is_directory = ::fstatat(directory_, entry->d_name, &status, AT_SYMLINK_NOFOLLOW) == 0 &&
                       S_ISDIR(status.st_mode);
      }
      entries.push_back({std::string(name), is_directory});
    }
    return entries;
  }

 private:
  Listing(int directory, DIR* stream) : directory_(directory), stream_(stream, ::closedir) {}
  int directory_;
  std::unique_ptr<DIR, int (*)(DIR*)> stream_;
};

/// Empties `child`, moving its non-empty directories into `top` under fresh names.
Status empty_directory(int top, int child, uint64_t& counter) {
  VARVE_ASSIGN(Listing listing, Listing::open(child));
  for (;;) {
    VARVE_ASSIGN(const std::vector<Entry> entries, listing.next());
    for (const Entry& entry : entries) {
      const char* name = entry.name.c_str();
      if (!entry.is_directory) {
        if (::unlinkat(child, name, 0) != 0) return fail_errno("removing " + quoted(entry.name));
        continue;
      }
      if (::unlinkat(child, name, AT_REMOVEDIR) == 0) continue;
      for (;;) {
        const std::string moved = "\x01removing." + std::to_string(counter++);
        if (::renameat2(child, name, top, moved.c_str(), RENAME_NOREPLACE) == 0) break;
        if (errno != EEXIST) return fail_errno("moving " + quoted(entry.name));
      }
    }
    if (entries.size() < kListedCountMax) return {};
  }
}

/// Goes once through what is in `top`, and what is moved there meanwhile may come up or not.
/// @return whether anything was there.
Result<bool> remove_entries(int top, uint64_t& counter) {
  VARVE_ASSIGN(Listing listing, Listing::open(top));
  for (bool is_first = true;; is_first = false) {
    VARVE_ASSIGN(const std::vector<Entry> entries, listing.next());
    for (const Entry& entry : entries) {
      const char* name = entry.name.c_str();
      if (!entry.is_directory) {
        if (::unlinkat(top, name, 0) != 0) return fail_errno("removing " + quoted(entry.name));
        continue;
      }
      if (::unlinkat(top, name, AT_REMOVEDIR) == 0) continue;
      {
        VARVE_ASSIGN(const UniqueFd child, open_below(top, name));
        VARVE_TRY(empty_directory(top, child.get(), counter));
      }
      if (::unlinkat(top, name, AT_REMOVEDIR) != 0)
        return fail_errno("removing " + quoted(entry.name));
    }
    if (entries.size() < kListedCountMax) return !is_first || !entries.empty();
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
