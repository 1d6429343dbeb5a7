#include "launcher/slot.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/file.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <memory>
#include <vector>

#include "base/file_io.h"
#include "base/remove_tree.h"
#include "launcher/id_map.h"
#include "launcher/spec.h"

namespace varve::launcher {
namespace {

constexpr char kPoolName[] = "/sandboxes";
constexpr char kUpperLink[] = "upper";
// In the slot of a dead sandbox that could not be cleaned up: that has been told, and waited for.
constexpr char kStuckMark[] = "stuck";
constexpr int64_t kCleanTimeoutMs = 5000;
constexpr size_t kCleanedCountMax = 64;

std::string cgroup_name_of(int pool, uint32_t number) {
  struct stat status {};
  (void)::fstat(pool, &status);
  return std::to_string(status.st_dev) + "-" + std::to_string(status.st_ino) + "-" +
         std::to_string(number);
}

Result<UniqueFd> open_pool(const std::string& run_dir) {
  const std::string path = run_dir + kPoolName;
  UniqueFd pool(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (pool) return pool;
  if (errno != ENOENT) return fail_errno("opening " + quoted(path));
  VARVE_TRY(make_directories(run_dir, 0755));
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    return fail_errno("creating directory " + quoted(path));
  }
  return open_file(path, O_RDONLY | O_DIRECTORY);
}

/// The slot's directory when nobody holds it, locked; empty when it is held or gone.
UniqueFd lock_slot(int pool, const char* name) {
  UniqueFd directory(::openat(pool, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!directory || ::flock(directory.get(), LOCK_EX | LOCK_NB) != 0) return UniqueFd();
  // Between the open and the lock its owner may have removed it.
  struct stat status;
  if (::fstat(directory.get(), &status) != 0 || status.st_nlink == 0) return UniqueFd();
  return directory;
}

std::vector<std::string> list_slots(int pool) {
  std::vector<std::string> names;
  const int copy = ::fcntl(pool, F_DUPFD_CLOEXEC, 0);
  if (copy < 0) return names;
  const std::unique_ptr<DIR, int (*)(DIR*)> stream(::fdopendir(copy), ::closedir);
  if (!stream) {
    ::close(copy);
    return names;
  }
  while (const dirent* entry = ::readdir(stream.get())) {
    if (parse_u32(entry->d_name)) names.push_back(entry->d_name);
  }
  return names;
}

/// Everything recorded in a slot whose lock the caller holds, and the slot itself.
Status clean_slot(int pool, int directory, const std::string& name, const qos::CgroupHost& cgroups,
                  Deadline deadline) {
  VARVE_TRY(
      qos::SandboxCgroup::remove_stale(cgroups, cgroup_name_of(pool, *parse_u32(name)), deadline));
  char target[PATH_MAX];
  const ssize_t n = ::readlinkat(directory, kUpperLink, target, sizeof target - 1);
  if (n > 0) {
    const std::string path(target, static_cast<size_t>(n));
    VARVE_TRY(remove_tree(path));
    if (::unlinkat(directory, kUpperLink, 0) != 0)
      return fail_errno("removing the record of " + quoted(path));
  }
  if (::unlinkat(directory, kStuckMark, 0) != 0 && errno != ENOENT)
    return fail_errno("removing a mark of slot " + quoted(name));
  if (::unlinkat(pool, name.c_str(), AT_REMOVEDIR) != 0)
    return fail_errno("removing slot " + quoted(name));
  return {};
}

Status refuse_overlayfs(int directory, const std::string& path) {
  struct statfs status;
  if (::fstatfs(directory, &status) != 0) return fail_errno("inspecting " + quoted(path));
  if (static_cast<unsigned long>(status.f_type) == OVERLAYFS_SUPER_MAGIC) {
    return fail(ErrorCode::kUnsupported,
                quoted(path) +
                    " is on an overlayfs, which cannot hold the written files of another "
                    "one; choose a --state-dir on a volume or tmpfs, or use --rw-size");
  }
  return {};
}

}  // namespace

Result<SlotPool> SlotPool::open(const std::string& run_dir) {
  VARVE_ASSIGN(UniqueFd directory, open_pool(run_dir));
  return SlotPool(run_dir, std::move(directory));
}

bool SlotPool::may_have_slots() const {
  struct stat status;
  // Its own "." and the name that its parent has for it; filesystems that count no subdirectories
  // say 1.
  return ::fstat(directory_.get(), &status) != 0 || status.st_nlink != 2;
}

Result<Slot> SlotPool::claim() && {
  const int pool = directory_.get();
  // Different processes start at different numbers, so that they rarely meet.
  const uint32_t start = static_cast<uint32_t>(::getpid());
  for (uint32_t i = 0; i < kSlotCount; ++i) {
    const uint32_t number = (start + i) % kSlotCount;
    const std::string name = std::to_string(number);
    if (::mkdirat(pool, name.c_str(), 0700) != 0) {
      if (errno == EEXIST) continue;
      return fail_errno("taking a slot in " + quoted(run_dir_ + kPoolName));
    }
    // A cleaner may hold the lock of the new directory for a moment, and remove it: take another.
    errno = 0;
    UniqueFd directory = lock_slot(pool, name.c_str());
    if (directory) return Slot(std::move(directory_), std::move(directory), number);
    if (errno != EMFILE && errno != ENFILE) continue;
    auto error = fail_errno("locking a slot in " + quoted(run_dir_ + kPoolName));
    (void)::unlinkat(pool, name.c_str(), AT_REMOVEDIR);
    return error;
  }
  return fail(ErrorCode::kUnavailable, "all " + std::to_string(kSlotCount) + " sandbox slots in " +
                                           quoted(run_dir_) + " are taken");
}

std::vector<Error> SlotPool::clean_up_dead(const qos::CgroupHost& cgroups) const {
  std::vector<Error> errors;
  const Deadline deadline = deadline_after_ms(kCleanTimeoutMs);
  const int pool = directory_.get();
  const std::vector<std::string> names = list_slots(pool);
  const size_t count = std::min(names.size(), kCleanedCountMax);
  const size_t start = static_cast<size_t>(::getpid());
  for (size_t i = 0; i < count; ++i) {
    const std::string& name = names[(start + i) % names.size()];
    const UniqueFd directory = lock_slot(pool, name.c_str());
    if (!directory) continue;
    const bool is_stuck = ::faccessat(directory.get(), kStuckMark, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
    auto status =
        clean_slot(pool, directory.get(), name, cgroups, is_stuck ? Deadline::min() : deadline);
    if (status || is_stuck) continue;
    (void)::symlinkat(".", directory.get(), kStuckMark);
    errors.push_back(std::move(status).error().with_context("cleaning up after a dead sandbox"));
  }
  return errors;
}

Slot::~Slot() {
  (void)release();
}

std::string Slot::cgroup_name() const {
  return cgroup_name_of(pool_.get(), number_);
}

Status Slot::record_upper(const std::string& path) {
  if (::symlinkat(path.c_str(), directory_.get(), kUpperLink) != 0) {
    return fail_errno("recording " + quoted(path));
  }
  return {};
}

Status Slot::release() {
  if (!directory_) return {};
  const UniqueFd directory = std::move(directory_);
  if (::unlinkat(directory.get(), kUpperLink, 0) != 0 && errno != ENOENT) {
    return fail_errno("removing the record of a sandbox");
  }
  if (::unlinkat(pool_.get(), std::to_string(number_).c_str(), AT_REMOVEDIR) != 0) {
    return fail_errno("giving back slot " + std::to_string(number_));
  }
  return {};
}

Status make_upper_and_work(int directory) {
  if (::mkdirat(directory, "work", 0700) != 0 || ::mkdirat(directory, "upper", 0700) != 0) {
    return fail_errno("creating upper and work directories");
  }
  return {};
}

Status copy_root_attributes(int directory, const struct stat& image_root) {
  const timespec times[2] = {image_root.st_atim, image_root.st_mtim};
  if (::fchmodat(directory, "upper", image_root.st_mode & 07777, 0) != 0 ||
      ::utimensat(directory, "upper", times, 0) != 0) {
    return fail_errno("copying the image root's attributes");
  }
  if ((image_root.st_uid != 0 || image_root.st_gid != 0) &&
      ::fchownat(directory, "upper", image_root.st_uid, image_root.st_gid, 0) != 0) {
    return fail_errno("copying the image root's owner");
  }
  return {};
}

Result<UpperDir> UpperDir::create(const std::string& state_dir, const std::string& name) {
  UniqueFd parent(::open(state_dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!parent) {
    VARVE_TRY(make_directories(state_dir, 0700));
    VARVE_ASSIGN(parent, open_file(state_dir, O_RDONLY | O_DIRECTORY));
  }
  VARVE_TRY(refuse_overlayfs(parent.get(), state_dir));
  if (::mkdirat(parent.get(), name.c_str(), 0700) != 0) {
    if (errno != EEXIST) return fail_errno("creating " + quoted(state_dir + "/" + name));
    VARVE_TRY(remove_tree_at(parent.get(), name));
    if (::mkdirat(parent.get(), name.c_str(), 0700) != 0) {
      return fail_errno("creating " + quoted(state_dir + "/" + name));
    }
  }
  auto directory = open_file_at(parent.get(), name, O_RDONLY | O_DIRECTORY);
  if (!directory) {
    (void)::unlinkat(parent.get(), name.c_str(), AT_REMOVEDIR);
    return tl::unexpected<Error>(std::move(directory).error());
  }
  UpperDir upper(std::move(parent), std::move(*directory), name, state_dir + "/" + name);
  VARVE_TRY(make_upper_and_work(upper.fd()));
  return upper;
}

UpperDir::~UpperDir() {
  (void)remove();
}

void UpperDir::remove_unwritten() {
  if (!directory_) return;
  // What the kernel made for a sandbox that wrote nothing, which is common enough to know by heart:
  // seven calls instead of a hundred. Whatever else is there makes the last one fail.
  (void)::unlinkat(directory_.get(), "work/work/incompat/volatile/dirty", 0);
  for (const char* name :
       {"work/work/incompat/volatile", "work/work/incompat", "work/work", "work", "upper"}) {
    (void)::unlinkat(directory_.get(), name, AT_REMOVEDIR);
  }
  if (::unlinkat(parent_.get(), name_.c_str(), AT_REMOVEDIR) == 0) directory_.reset();
}

Status UpperDir::remove() {
  remove_unwritten();
  if (!directory_) return {};
  directory_.reset();
  return remove_tree_at(parent_.get(), name_);
}

}  // namespace varve::launcher
