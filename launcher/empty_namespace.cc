#include "launcher/empty_namespace.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>

#include "base/file_io.h"
#include "base/mount_api.h"
#include "guard/masks.h"

namespace varve::launcher {
namespace {

/// Lets go of every mount of the host. The process keeps its root until it takes the namespace's.
Status detach_host_tree() {
  VARVE_ASSIGN(const UniqueFd self, open_file("/proc/self/ns/mnt", O_RDONLY));
  if (::umount2("/", MNT_DETACH) != 0) {
    if (errno == EINVAL) return {};
    return fail_errno("detaching the host's mounts");
  }
  if (::setns(self.get(), CLONE_NEWNS) != 0) return fail_errno("taking the namespace's root");
  return {};
}

Status make_directory_at(int directory, const std::string& path) {
  for (size_t slash = 0; slash != std::string::npos;) {
    slash = path.find('/', slash + 1);
    const std::string prefix = path.substr(0, slash);
    if (::mkdirat(directory, prefix.c_str(), 0555) != 0 && errno != EEXIST) {
      return fail_errno("creating " + quoted(prefix));
    }
  }
  return {};
}

/// Lays the allow list of /sys out below `sysfs`, from the sysfs mounted at /sys.
Status attach_visible_sysfs(int root) {
  for (const guard::SysfsEntry& entry : guard::visible_sysfs()) {
    const std::string source = std::string("sys/") + entry.path;
    auto tree = clone_mount(root, source);
    if (!tree) {
      if (tree.error().errno_value() == ENOENT) continue;
      return fail(std::move(tree).error(), "cloning " + quoted(source));
    }
    mount_attr attributes{};
    attributes.attr_set =
        MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC;
    VARVE_TRY(set_mount_attributes(tree->get(), attributes));
    const std::string target = std::string(kSysfsName) + "/" + entry.path;
    VARVE_TRY(make_directory_at(root, target));
    VARVE_TRY(move_mount_to(tree->get(), root, target));
  }
  return {};
}

}  // namespace

Status enter_empty_namespace() {
  VARVE_TRY(unshare_mounts());
  VARVE_TRY(detach_host_tree());
  VARVE_ASSIGN(const UniqueFd root, new_mount("tmpfs", {{"mode", "0555"}}, 0));
  for (const char* name : {"proc", "sys", kEmptyDirectoryName, kSysfsName}) {
    VARVE_TRY(make_directory_at(root.get(), name));
  }
  if (::mknodat(root.get(), kEmptyFileName, S_IFREG | 0444, 0) != 0) {
    return fail_errno("creating the empty file");
  }
  VARVE_TRY(move_mount_to(root.get(), AT_FDCWD, "/"));
  if (::fchdir(root.get()) != 0 || ::chroot(".") != 0) return fail_errno("entering the empty root");
  // A user namespace may mount a new procfs only where it can see a whole one.
  VARVE_ASSIGN(const UniqueFd proc, new_mount("proc", {}, 0));
  VARVE_TRY(move_mount_to(proc.get(), root.get(), "proc"));
  VARVE_ASSIGN(const UniqueFd sysfs, new_mount("sysfs", {}, 0));
  VARVE_TRY(move_mount_to(sysfs.get(), root.get(), "sys"));
  VARVE_TRY(attach_visible_sysfs(root.get()));
  mount_attr attributes{};
  attributes.attr_set =
      MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC;
  return set_mount_attributes(root.get(), attributes);
}

Status enter_empty_namespace(int namespace_fd) {
  if (::setns(namespace_fd, CLONE_NEWNS) != 0) return fail_errno("entering the kept namespace");
  return {};
}

std::string empty_namespace_name() {
  // Its procfs shows one pid namespace, and the id maps of a child are written through it.
  struct stat pids {};
  (void)::stat("/proc/self/ns/pid", &pids);
  std::string name = "sandbox-root-1:" + std::to_string(pids.st_ino);
  for (const guard::SysfsEntry& entry : guard::visible_sysfs()) {
    name += ':';
    name += entry.path;
  }
  // It is the name of a file, too.
  std::replace(name.begin(), name.end(), '/', '-');
  return name;
}

UniqueFd open_kept_namespace(const std::string& run_dir, pid_t varvefs_pid) {
  const std::string record = run_dir + "/namespaces/" + empty_namespace_name();
  char place[64];
  const ssize_t n = ::readlink(record.c_str(), place, sizeof place - 1);
  if (n < 0) return {};
  place[n] = '\0';
  // A dead varvefs leaves its records behind.
  const std::string process = "/proc/" + std::to_string(varvefs_pid) + "/";
  if (!std::string_view(place).starts_with(process)) return {};
  return UniqueFd(::open(place, O_RDONLY | O_CLOEXEC));
}

}  // namespace varve::launcher
