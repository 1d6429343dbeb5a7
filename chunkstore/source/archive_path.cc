#include "chunkstore/source/archive_path.h"

#include "base/bytes.h"

namespace varve::chunkstore {
namespace {

tl::unexpected<Error> refuse(std::string_view name, const char* why) {
  return fail(ErrorCode::kInvalidArgument, quoted(name) + " " + why);
}

}  // namespace

Result<std::string> normalise_archive_path(std::string_view name) {
  if (name.find('\0') != std::string_view::npos) return refuse(name, "holds a NUL byte");
  std::string path;
  for (size_t start = 0; start < name.size();) {
    const size_t slash = std::min(name.find('/', start), name.size());
    const std::string_view component = name.substr(start, slash - start);
    start = slash + 1;
    if (component.empty() || component == ".") continue;
    if (component == "..") return refuse(name, "has a '..' component");
    if (component.size() > kNameBytesMax) {
      return refuse(name, "has a component longer than 255 bytes");
    }
    if (!path.empty()) path += '/';
    path += component;
  }
  if (!path.empty() && name.front() == '/') return refuse(name, "is an absolute path");
  return path;
}

std::string_view parent_path(std::string_view path) {
  const size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? std::string_view() : path.substr(0, slash);
}

std::string_view base_name(std::string_view path) {
  const size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? path : path.substr(slash + 1);
}

std::string join_path(std::string_view directory, std::string_view name) {
  std::string path(directory);
  if (!path.empty() && !name.empty()) path += '/';
  path += name;
  return path;
}

}  // namespace varve::chunkstore
