#include "base/temp_dir.h"

#include <ftw.h>
#include <stdlib.h>
#include <unistd.h>

#include <utility>

#include "base/bytes.h"

namespace varve {

Result<TempDir> TempDir::create(const std::string& prefix, const std::string& parent) {
  std::string base = parent;
  if (base.empty()) {
    const char* from_environment = ::getenv("TMPDIR");
    base = from_environment != nullptr && *from_environment != '\0' ? from_environment : "/tmp";
  }
  std::string path = base + "/" + prefix + "XXXXXX";
  if (::mkdtemp(path.data()) == nullptr) return fail_errno("creating directory " + quoted(path));
  return TempDir(std::move(path));
}

TempDir& TempDir::operator=(TempDir&& other) noexcept {
  std::swap(path_, other.path_);
  return *this;
}

TempDir::~TempDir() {
  if (!path_.empty()) (void)remove_tree(path_);
}

std::string TempDir::release() { return std::exchange(path_, std::string()); }

Status remove_tree(const std::string& path) {
  static thread_local std::string failed_path;
  static thread_local int failed_errno;
  failed_errno = 0;
  const auto remove_one = [](const char* name, const struct stat*, int, struct FTW*) {
    if (::remove(name) != 0 && errno != ENOENT && failed_errno == 0) {
      failed_errno = errno;
      failed_path = name;
    }
    return 0;
  };
  if (::nftw(path.c_str(), remove_one, 32, FTW_DEPTH | FTW_PHYS | FTW_MOUNT) != 0 &&
      errno != ENOENT) {
    return fail_errno("removing " + quoted(path));
  }
  if (failed_errno != 0) return fail_errno(failed_errno, "removing " + quoted(failed_path));
  return {};
}

}  // namespace varve
