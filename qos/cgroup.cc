#include "qos/cgroup.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <iterator>
#include <utility>

#include "base/clock.h"
#include "base/file_io.h"

namespace varve::qos {
namespace {

constexpr char kNamePrefix[] = "varve-";
constexpr char kParentName[] = "varve";
constexpr char kControllersFile[] = "cgroup.controllers";
constexpr const char* kV1Names[] = {"memory", "cpu", "pids", "freezer"};
constexpr int kMakeAttemptsMax = 100;
constexpr int64_t kRemoveTimeoutMs = 5000;
constexpr uint32_t kCpuPeriodUsec = 100'000;

std::string label(const CgroupHierarchy& hierarchy, const std::string& path) {
  return "cgroup " + quoted(hierarchy.name + ":" + path);
}

Status write_value(int directory, const std::string& file, const std::string& value) {
  VARVE_ASSIGN(const UniqueFd fd, open_file_at(directory, file, O_WRONLY));
  if (::write(fd.get(), value.data(), value.size()) < 0) {
    return fail_errno("writing " + quoted(value) + " to " + quoted(file));
  }
  return {};
}

/// The first 4 KiB of a control file, "" when it cannot be read; nothing when there is none.
std::optional<std::string> find_text(int directory, const char* file) {
  const UniqueFd fd(::openat(directory, file, O_RDONLY | O_CLOEXEC));
  if (!fd && errno == ENOENT) return std::nullopt;
  char buffer[4096];
  const ssize_t n = fd ? ::read(fd.get(), buffer, sizeof buffer) : -1;
  return n > 0 ? std::string(buffer, static_cast<size_t>(n)) : std::string();
}

std::string read_text(int directory, const char* file) {
  return find_text(directory, file).value_or("");
}

std::optional<uint64_t> parse_number(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end == text.data()) return std::nullopt;
  return value;
}

/// The number after `key` in a file of "key number" lines.
std::optional<uint64_t> keyed_number(const std::string& text, const std::string& key) {
  size_t at = 0;
  while (at < text.size()) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line(text.data() + at, end - at);
    if (line.size() > key.size() && line.starts_with(key) && line[key.size()] == ' ') {
      return parse_number(line.substr(key.size() + 1));
    }
    at = end + 1;
  }
  return std::nullopt;
}

bool exists(int directory, const char* file) {
  return ::faccessat(directory, file, F_OK, 0) == 0;
}

bool has_word(std::string_view text, std::string_view word) {
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find_first_of(" \n", at), text.size());
    if (text.substr(at, end - at) == word) return true;
    at = end + 1;
  }
  return false;
}

bool has_controllers(const CgroupHierarchy& hierarchy) {
  return hierarchy.has_memory || hierarchy.has_cpu || hierarchy.has_pids;
}

/// v2 controllers are handed down by a parent of ours: while it hands them on, nobody can take them
/// from the groups below it, as systemd does at the top with those that no unit of its own needs.
bool has_parent(const CgroupHierarchy& hierarchy) {
  return hierarchy.is_v2 && has_controllers(hierarchy);
}

std::string path_in(const CgroupHierarchy& hierarchy, const std::string& name) {
  return has_parent(hierarchy) ? std::string(kParentName) + "/" + name : kNamePrefix + name;
}

/// Enables the hierarchy's controllers for the groups below `directory`, where nobody has. The
/// host's own top may have processes beside; the one that a container sees as the top may not
/// (EBUSY), and moving somebody else's processes is not for us.
Status enable_controllers(const CgroupHierarchy& hierarchy, int directory,
                          const std::string& path) {
  const std::string enabled = read_text(directory, "cgroup.subtree_control");
  for (const auto& [has, controller] :
       {std::pair{hierarchy.has_memory, "memory"}, std::pair{hierarchy.has_cpu, "cpu"},
        std::pair{hierarchy.has_pids, "pids"}}) {
    if (!has || has_word(enabled, controller)) continue;
    auto status = write_value(directory, "cgroup.subtree_control", std::string("+") + controller);
    if (status) continue;
    const bool is_busy = status.error().errno_value() == EBUSY;
    return fail(std::move(status).error(),
                "enabling controllers for " + label(hierarchy, path) +
                    (is_busy ? " (move its processes into a cgroup below it, as in 'mkdir "
                               "/sys/fs/cgroup/init; echo PID > /sys/fs/cgroup/init/cgroup.procs')"
                             : ""));
  }
  return {};
}

Status hand_controllers_down(const CgroupHierarchy& hierarchy) {
  VARVE_TRY(enable_controllers(hierarchy, hierarchy.root.get(), "/"));
  VARVE_ASSIGN(const UniqueFd parent,
               open_file_at(hierarchy.root.get(), kParentName, O_PATH | O_DIRECTORY));
  return enable_controllers(hierarchy, parent.get(), kParentName);
}

/// False when the group lacks a controller: its parent is new, or one was taken away meanwhile.
bool has_its_controllers(const CgroupHierarchy& hierarchy, int directory) {
  return (!hierarchy.has_memory || exists(directory, "memory.max")) &&
         (!hierarchy.has_cpu || exists(directory, "cpu.max")) &&
         (!hierarchy.has_pids || exists(directory, "pids.max"));
}

/// Makes the directory, and its parent, which an ending sandbox may remove at any time.
Status make_directory(const CgroupHierarchy& hierarchy, const std::string& path) {
  const int root = hierarchy.root.get();
  for (int attempt = 0; ::mkdirat(root, path.c_str(), 0755) != 0; ++attempt) {
    if (errno != ENOENT || attempt == kMakeAttemptsMax) {
      return fail_errno("creating " + label(hierarchy, path));
    }
    if (::mkdirat(root, kParentName, 0755) != 0 && errno != EEXIST) {
      return fail_errno("creating " + label(hierarchy, kParentName));
    }
  }
  return {};
}

/// One round of SIGKILL to the processes listed, some hundreds of them at most: who removes a group
/// comes again while it has any.
void kill_listed(int directory, const char* file) {
  const std::string text = read_text(directory, file);
  size_t at = 0;
  while (at < text.size()) {
    const size_t end = std::min(text.find('\n', at), text.size());
    // 0 stands for a process of a foreign pid namespace, which this host cannot name.
    const auto pid = parse_number(std::string_view(text).substr(at, end - at));
    if (pid && *pid > 1) (void)::kill(static_cast<pid_t>(*pid), SIGKILL);
    at = end + 1;
  }
}

/// Freezes while it kills, so that a fork bomb cannot outrun the loop; SIGKILL acts on thaw.
Status kill_v1(int directory, bool has_freezer) {
  if (has_freezer) VARVE_TRY(write_value(directory, "freezer.state", "FROZEN"));
  kill_listed(directory, "cgroup.procs");
  if (has_freezer) VARVE_TRY(write_value(directory, "freezer.state", "THAWED"));
  return {};
}

Status kill_directory(const CgroupHierarchy& hierarchy, int directory) {
  if (hierarchy.is_v2 && exists(directory, "cgroup.kill")) {
    return write_value(directory, "cgroup.kill", "1");
  }
  return kill_v1(directory, hierarchy.has_freezer);
}

/// rmdir; while processes are still leaving (EBUSY) they are killed again and waited for.
Status remove_directory(const CgroupHierarchy& hierarchy, const std::string& path,
                        Deadline deadline) {
  for (int round = 0;; ++round) {
    if (::unlinkat(hierarchy.root.get(), path.c_str(), AT_REMOVEDIR) == 0 || errno == ENOENT) {
      return {};
    }
    if (errno != EBUSY || MonotonicClock::now() > deadline) {
      return fail_errno("removing " + label(hierarchy, path));
    }
    const UniqueFd directory(
        ::openat(hierarchy.root.get(), path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (directory) VARVE_TRY(kill_directory(hierarchy, directory.get()));
    if (round < 20) {
      ::sched_yield();
    } else {
      const timespec pause{0, 1'000'000};
      ::nanosleep(&pause, nullptr);
    }
  }
}

/// The group, and the parent with its last one.
Status remove_group(const CgroupHierarchy& hierarchy, const std::string& path, Deadline deadline) {
  VARVE_TRY(remove_directory(hierarchy, path, deadline));
  if (has_parent(hierarchy)) (void)::unlinkat(hierarchy.root.get(), kParentName, AT_REMOVEDIR);
  return {};
}

}  // namespace

Result<CgroupHost> CgroupHost::probe(const std::string& mount_path) {
  VARVE_ASSIGN(CgroupHost host, begin_probe(mount_path));
  auto status = host.finish_probe();
  if (!status) return fail(std::move(status).error(), quoted(mount_path));
  return host;
}

Result<CgroupHost> CgroupHost::begin_probe(const std::string& mount_path) {
  VARVE_ASSIGN(UniqueFd top, open_file(mount_path, O_PATH | O_DIRECTORY));
  CgroupHost host;
  host.hierarchies_.reserve(kHierarchyCountMax);
  const auto add_v2 = [&host](UniqueFd root, std::string name, const std::string& controllers) {
    CgroupHierarchy hierarchy;
    hierarchy.is_v2 = true;
    hierarchy.has_memory = has_word(controllers, "memory");
    hierarchy.has_cpu = has_word(controllers, "cpu");
    hierarchy.has_pids = has_word(controllers, "pids");
    hierarchy.root = std::move(root);
    hierarchy.name = std::move(name);
    host.hierarchies_.push_back(std::move(hierarchy));
  };
  if (const auto controllers = find_text(top.get(), kControllersFile)) {
    add_v2(std::move(top), "cgroup2", *controllers);
    return host;
  }
  UniqueFd unified(::openat(top.get(), "unified", O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (unified) {
    if (const auto controllers = find_text(unified.get(), kControllersFile)) {
      add_v2(std::move(unified), "unified", *controllers);
    }
  }
  static_assert(std::size(kV1Names) == std::tuple_size_v<decltype(host.v1_roots_)>);
  for (size_t i = 0; i < host.v1_roots_.size(); ++i) {
    // A v2 group kills and freezes by itself; a v1 freezer is one more group to make.
    if (kV1Names[i] == std::string_view("freezer") && !host.hierarchies_.empty()) continue;
    host.v1_roots_[i].reset(::openat(top.get(), kV1Names[i], O_PATH | O_DIRECTORY | O_CLOEXEC));
  }
  host.is_complete_ = false;
  return host;
}

Status CgroupHost::finish_probe() {
  if (std::exchange(is_complete_, true)) return {};
  for (size_t i = 0; i < v1_roots_.size(); ++i) {
    UniqueFd root = std::move(v1_roots_[i]);
    const std::string_view controller = kV1Names[i];
    if (!root || !exists(root.get(), "tasks")) continue;
    CgroupHierarchy hierarchy;
    hierarchy.has_memory = controller == "memory";
    hierarchy.has_cpu = controller == "cpu";
    hierarchy.has_pids = controller == "pids";
    hierarchy.has_freezer = controller == "freezer";
    hierarchy.root = std::move(root);
    hierarchy.name = controller;
    hierarchies_.push_back(std::move(hierarchy));
  }
  if (hierarchies_.empty()) {
    return fail(ErrorCode::kUnsupported, "no cgroup filesystem is mounted");
  }
  return {};
}

bool CgroupHost::has_memory() const {
  for (const auto& hierarchy : hierarchies_) {
    if (hierarchy.has_memory) return true;
  }
  return false;
}
bool CgroupHost::has_cpu() const {
  for (const auto& hierarchy : hierarchies_) {
    if (hierarchy.has_cpu) return true;
  }
  return false;
}
bool CgroupHost::has_pids() const {
  for (const auto& hierarchy : hierarchies_) {
    if (hierarchy.has_pids) return true;
  }
  return false;
}

Status SandboxCgroup::set_limits(const Group& group) const {
  const CgroupLimits& limits = limits_;
  const CgroupHierarchy& hierarchy = *group.hierarchy;
  const int directory = group.directory.get();
  if (hierarchy.has_memory && limits.memory_bytes_max) {
    const std::string bytes = std::to_string(*limits.memory_bytes_max);
    VARVE_TRY(
        write_value(directory, hierarchy.is_v2 ? "memory.max" : "memory.limit_in_bytes", bytes));
    // Without swap accounting the file is absent, and so is the swap that it would limit.
    const char* swap = hierarchy.is_v2 ? "memory.swap.max" : "memory.memsw.limit_in_bytes";
    if (exists(directory, swap)) {
      VARVE_TRY(write_value(directory, swap, hierarchy.is_v2 ? "0" : bytes));
    }
  }
  if (hierarchy.has_pids && limits.pids_max) {
    VARVE_TRY(write_value(directory, "pids.max", std::to_string(*limits.pids_max)));
  }
  if (hierarchy.has_cpu && limits.cpu_milli_max) {
    const std::string quota =
        std::to_string(uint64_t{*limits.cpu_milli_max} * kCpuPeriodUsec / 1000);
    if (hierarchy.is_v2) {
      VARVE_TRY(write_value(directory, "cpu.max", quota + " " + std::to_string(kCpuPeriodUsec)));
    } else {
      VARVE_TRY(write_value(directory, "cpu.cfs_period_us", std::to_string(kCpuPeriodUsec)));
      VARVE_TRY(write_value(directory, "cpu.cfs_quota_us", quota));
    }
  }
  return {};
}

Status SandboxCgroup::add_group(const CgroupHierarchy& hierarchy) {
  const std::string path = path_in(hierarchy, name_);
  auto made = make_directory(hierarchy, path);
  if (!made && made.error().errno_value() == EEXIST) {
    VARVE_TRY(remove_directory(hierarchy, path, deadline_after_ms(kRemoveTimeoutMs)));
    made = make_directory(hierarchy, path);
  }
  if (!made) return made;
  // From here on it is removed whatever happens.
  groups_.emplace_back();
  Group& group = groups_.back();
  group.hierarchy = &hierarchy;
  group.directory.reset(
      ::openat(hierarchy.root.get(), path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!group.directory) return fail_errno("opening " + label(hierarchy, path));
  const int directory = group.directory.get();
  if (!hierarchy.is_v2) {
    groups_.back().join.reset(::openat(directory, "tasks", O_WRONLY | O_CLOEXEC));
    if (!groups_.back().join) return fail_errno("opening tasks of " + label(hierarchy, path));
  }
  if (has_parent(hierarchy) && !has_its_controllers(hierarchy, directory)) {
    VARVE_TRY(hand_controllers_down(hierarchy));
  }
  auto status = set_limits(groups_.back());
  if (status) return {};
  return fail(std::move(status).error(), "limiting " + label(hierarchy, path));
}

Status SandboxCgroup::check_limits(const CgroupHost& host, const CgroupLimits& limits) {
  if (limits.memory_bytes_max && !host.has_memory()) {
    return fail(ErrorCode::kUnsupported, "this host has no memory cgroup controller");
  }
  if (limits.cpu_milli_max && !host.has_cpu()) {
    return fail(ErrorCode::kUnsupported, "this host has no cpu cgroup controller");
  }
  if (limits.pids_max && !host.has_pids()) {
    return fail(ErrorCode::kUnsupported, "this host has no pids cgroup controller");
  }
  return {};
}

Result<SandboxCgroup> SandboxCgroup::create(const CgroupHost& host, const std::string& name,
                                            const CgroupLimits& limits) {
  if (host.is_complete()) VARVE_TRY(check_limits(host, limits));
  SandboxCgroup cgroup(name, limits);
  for (const CgroupHierarchy& hierarchy : host.hierarchies()) {
    if (hierarchy.is_v2) VARVE_TRY(cgroup.add_group(hierarchy));
  }
  return cgroup;
}

Status SandboxCgroup::create_joined(const CgroupHost& host) {
  VARVE_TRY(check_limits(host, limits_));
  for (const CgroupHierarchy& hierarchy : host.hierarchies()) {
    if (!hierarchy.is_v2) VARVE_TRY(add_group(hierarchy));
  }
  return {};
}

Status SandboxCgroup::remove_stale(const CgroupHost& host, const std::string& name,
                                   Deadline deadline) {
  Status first;
  for (const CgroupHierarchy& hierarchy : host.hierarchies()) {
    auto status = remove_group(hierarchy, path_in(hierarchy, name), deadline);
    if (!status && first) first = std::move(status);
  }
  return first;
}

SandboxCgroup::~SandboxCgroup() {
  (void)remove();
}

int SandboxCgroup::clone_into_fd() const {
  for (const Group& group : groups_) {
    if (group.hierarchy->is_v2) return group.directory.get();
  }
  return -1;
}

std::vector<int> SandboxCgroup::join_fds() const {
  std::vector<int> fds;
  for (const Group& group : groups_) {
    if (group.join) fds.push_back(group.join.get());
  }
  return fds;
}

Result<CgroupUsage> SandboxCgroup::usage() const {
  CgroupUsage usage;
  for (const Group& group : groups_) {
    const int directory = group.directory.get();
    if (group.hierarchy->is_v2) {
      if (const auto cpu = keyed_number(read_text(directory, "cpu.stat"), "usage_usec")) {
        usage.cpu_usec = cpu;
      }
    }
    if (!group.hierarchy->has_memory) continue;
    usage.memory_peak_bytes = parse_number(
        read_text(directory, group.hierarchy->is_v2 ? "memory.peak" : "memory.max_usage_in_bytes"));
    usage.oom_kill_count = keyed_number(
        read_text(directory, group.hierarchy->is_v2 ? "memory.events" : "memory.oom_control"),
        "oom_kill");
  }
  return usage;
}

Status SandboxCgroup::remove() {
  Status first;
  if (groups_.empty()) return first;
  const Deadline deadline = deadline_after_ms(kRemoveTimeoutMs);
  while (!groups_.empty()) {
    Group group = std::move(groups_.back());
    groups_.pop_back();
    auto status = remove_group(*group.hierarchy, path_in(*group.hierarchy, name_), deadline);
    if (!status && first) first = std::move(status);
  }
  return first;
}

}  // namespace varve::qos
