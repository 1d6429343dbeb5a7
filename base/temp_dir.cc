#include "base/temp_dir.h"

#include <stdlib.h>
#include <unistd.h>

#include <utility>

#include "base/bytes.h"
#include "base/remove_tree.h"

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

}  // namespace varve
