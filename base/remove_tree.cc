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

/// The first entries, at most kListedCountMax.
Result<std::vector<Entry>> list(int directory) {
  const int copy = ::openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (copy < 0) return fail_errno("listing a directory");
  const std::unique_ptr<DIR, int (*)(DIR*)> stream(::fdopendir(copy), ::closedir);
  if (!stream) {
    ::close(copy);
    return fail_errno("listing a directory");
  }
  std::vector<Entry> entries;
  while (entries.size() < kListedCountMax) {
    errno = 0;
    const dirent* entry = ::readdir(stream.get());
    if (entry == nullptr && errno != 0) return fail_errno("listing a directory");
    if (entry == nullptr) break;
    const std::string_view name = entry->d_name;
    if (name == "." || name == "..") continue;
    bool is_directory = entry->d_type == DT_DIR;
    if (entry->d_type == DT_UNKNOWN) {
      struct stat status;
      is_directory = ::fstatat(directory, entry->d_name, &status, AT_SYMLINK_NOFOLLOW) == 0 &&
                     S_ISDIR(status.st_mode);
    }
    entries.push_back({std::string(name), is_directory});
  }
  return entries;
}

/// Empties `child`, moving its non-empty directories into `top` under fresh names.
Status empty_directory(int top, int child, uint64_t& counter) {
  for (;;) {
    VARVE_ASSIGN(const std::vector<Entry> entries, list(child));
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
  for (;;) {
    VARVE_ASSIGN(const std::vector<Entry> entries, list(top.get()));
    if (entries.empty()) break;
    for (const Entry& entry : entries) {
      const char* name = entry.name.c_str();
      if (!entry.is_directory) {
        if (::unlinkat(top.get(), name, 0) != 0)
          return fail_errno("removing " + quoted(entry.name));
        continue;
      }
      if (::unlinkat(top.get(), name, AT_REMOVEDIR) == 0) continue;
      {
        VARVE_ASSIGN(const UniqueFd child, open_below(top.get(), name));
        VARVE_TRY(empty_directory(top.get(), child.get(), counter));
      }
      if (::unlinkat(top.get(), name, AT_REMOVEDIR) != 0)
        return fail_errno("removing " + quoted(entry.name));
    }
  }
  if (::unlinkat(directory, path.c_str(), AT_REMOVEDIR) != 0)
    return fail_errno("removing " + quoted(path));
  return {};
}

}  // namespace varve
