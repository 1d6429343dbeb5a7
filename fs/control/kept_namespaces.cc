#include "fs/control/kept_namespaces.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/file_io.h"
#include "base/remove_tree.h"

namespace varve::fs {
namespace {

constexpr size_t kNameBytesMax = 255;

bool is_file_name(const std::string& name) {
  return !name.empty() && name.size() <= kNameBytesMax && name.front() != '.' &&
         name.find('/') == std::string::npos && name.find('\0') == std::string::npos;
}

}  // namespace

Result<KeptNamespaces> KeptNamespaces::create(const std::string& directory) {
  VARVE_TRY(remove_tree(directory));
  VARVE_TRY(make_directories(directory, 0700));
  return KeptNamespaces(directory);
}

KeptNamespaces::KeptNamespaces(KeptNamespaces&& other) noexcept
    : directory_(std::exchange(other.directory_, {})), namespaces_(std::move(other.namespaces_)) {}

KeptNamespaces::~KeptNamespaces() {
  if (!directory_.empty()) (void)remove_tree(directory_);
}

Status KeptNamespaces::keep(const std::string& name, pid_t pid) {
  if (!is_file_name(name)) {
    return fail(ErrorCode::kInvalidArgument, "'name' is no file name of 1 to 255 bytes");
  }
  VARVE_ASSIGN(UniqueFd fd, open_file("/proc/" + std::to_string(pid) + "/ns/mnt", O_RDONLY));
  std::lock_guard lock(mutex_);
  if (namespaces_.contains(name)) return {};
  if (namespaces_.size() >= kCountMax) {
    return fail(ErrorCode::kBusy, "too many namespaces are kept");
  }
  const std::string record = directory_ + "/" + name;
  const std::string place = "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(fd.get());
  if (symlink(place.c_str(), record.c_str())) return fail_errno("creating " + quoted(record));
  namespaces_.emplace(name, std::move(fd));
  return {};
}

}  // namespace varve::fs
