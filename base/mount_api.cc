#include "base/mount_api.h"

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <cerrno>

#include "base/bytes.h"

namespace varve {
namespace {

/// The kernel's own words about why a filesystem refused, "" when there are none. Each read of a
/// context returns one line, prefixed with a letter for its weight.
std::string context_log(int context) {
  std::string text;
  char line[512];
  for (;;) {
    const ssize_t n = ::read(context, line, sizeof line);
    if (n <= 2) return text;
    std::string_view message(line + 2, static_cast<size_t>(n) - 2);
    while (message.ends_with('\n')) message.remove_suffix(1);
    if (!text.empty()) text += "; ";
    text += message;
  }
}

}  // namespace

Status unshare_mounts() {
  if (::unshare(CLONE_NEWNS) != 0) return fail_errno("creating a mount namespace");
  if (::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0) return {};
  if (errno != EINVAL) return fail_errno("making mounts private");
  return fail(ErrorCode::kUnsupported,
              "the root directory is not a mount point (in a chroot: bind-mount its root onto "
              "itself before entering it)");
}

Status set_mount_options(int context, const MountOptions& options) {
  for (const auto& [name, value] : options) {
    const bool is_flag = value.empty();
    if (::fsconfig(context, is_flag ? FSCONFIG_SET_FLAG : FSCONFIG_SET_STRING, name.c_str(),
                   is_flag ? nullptr : value.c_str(), 0) != 0) {
      return fail_errno("setting mount option " + quoted(name + (is_flag ? "" : "=" + value)));
    }
  }
  return {};
}

Result<UniqueFd> create_mount(int context, unsigned attributes) {
  if (::fsconfig(context, FSCONFIG_CMD_CREATE, nullptr, nullptr, 0) != 0) {
    const int create_errno = errno;
    const std::string log = context_log(context);
    return fail_errno(create_errno, log.empty() ? "creating it" : "creating it (" + log + ")");
  }
  UniqueFd mount(::fsmount(context, FSMOUNT_CLOEXEC, attributes));
  if (!mount) return fail_errno("mounting it");
  return mount;
}

Result<UniqueFd> new_mount(const std::string& type, const MountOptions& options,
                           unsigned attributes) {
  const UniqueFd context(::fsopen(type.c_str(), FSOPEN_CLOEXEC));
  if (!context) return fail_errno("opening filesystem type " + quoted(type));
  auto status = set_mount_options(context.get(), options);
  if (!status) return fail(std::move(status).error(), "a new " + type);
  auto mount = create_mount(context.get(), attributes);
  if (!mount) return fail(std::move(mount).error(), "a new " + type);
  return mount;
}

Result<UniqueFd> clone_mount(int directory, const std::string& path) {
  const unsigned flags = OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC |
                         (path.empty() ? static_cast<unsigned>(AT_EMPTY_PATH) : 0U);
  UniqueFd tree(::open_tree(directory, path.c_str(), flags));
  if (!tree) return fail_errno("cloning a mount");
  return tree;
}

Status set_mount_attributes(int mount, mount_attr attributes) {
  if (::mount_setattr(mount, "", AT_EMPTY_PATH, &attributes, sizeof attributes) != 0) {
    return fail_errno("setting mount attributes");
  }
  return {};
}

Status idmap_mount(int mount, int user_namespace) {
  mount_attr attributes{};
  attributes.attr_set = MOUNT_ATTR_IDMAP;
  attributes.userns_fd = static_cast<unsigned>(user_namespace);
  return set_mount_attributes(mount, attributes);
}

Status move_mount_to(int mount, int directory, const std::string& path) {
  if (::move_mount(mount, "", directory, path.c_str(), MOVE_MOUNT_F_EMPTY_PATH) != 0) {
    return fail_errno("mounting at " + quoted(path));
  }
  return {};
}

}  // namespace varve
