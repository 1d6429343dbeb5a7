#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/unique_fd.h"

namespace varve::qos {

/// What a sandbox may use; an absent value means no limit.
struct CgroupLimits {
  std::optional<uint64_t> memory_bytes_max;
  std::optional<uint32_t> cpu_milli_max;  ///< Thousandths of a CPU.
  std::optional<uint32_t> pids_max;
};

/// What a sandbox has used; absent where the host cannot tell.
struct CgroupUsage {
  std::optional<uint64_t> memory_peak_bytes;
  std::optional<uint64_t> cpu_usec;
  std::optional<uint64_t> oom_kill_count;
};

/// One cgroup hierarchy of the host and what it is used for.
struct CgroupHierarchy {
  UniqueFd root;  ///< Its top directory.
  bool is_v2 = false;
  bool has_memory = false;
  bool has_cpu = false;
  bool has_pids = false;
  bool has_freezer = false;  ///< v1 only; v2 freezes everywhere.
  std::string name;          ///< For messages: "memory", "unified".
};

/// The hierarchies of this host, probed once: pure v2, pure v1, or both side by side (hybrid).
class CgroupHost {
 public:
  /// @param mount_path  Where cgroup filesystems are mounted; tests pass a plain directory.
  /// Errors: kUnsupported when there is none.
  static Result<CgroupHost> probe(const std::string& mount_path = "/sys/fs/cgroup");
  /// The same in two steps: v2, where a process can be born, and v1, which it joins later on.
  /// Between the two the host has its v2 hierarchy only.
  static Result<CgroupHost> begin_probe(const std::string& mount_path = "/sys/fs/cgroup");
  /// Idempotent. Does not move the hierarchies that are known already. Errors: those of probe().
  Status finish_probe();
  bool is_complete() const { return is_complete_; }

  const std::vector<CgroupHierarchy>& hierarchies() const { return hierarchies_; }
  bool has_memory() const;
  bool has_cpu() const;
  bool has_pids() const;

 private:
  static constexpr size_t kV1CountMax = 4;
  static constexpr size_t kHierarchyCountMax = kV1CountMax + 1;  // And unified.

  std::vector<CgroupHierarchy> hierarchies_;
  bool is_complete_ = true;
  // Between the steps: what may be tops of v1 hierarchies, opened early, for the caller may leave
  // its mount namespace meanwhile, and the mounts of one that nobody is in come apart.
  std::array<UniqueFd, kV1CountMax> v1_roots_;
};

/// The groups of one sandbox: `varve-<name>` at the top of every hierarchy that is used, but
/// `varve/<name>` where v2 has controllers. There the parent hands them down, and while it does the
/// kernel refuses to disable them above, as systemd would with those that no unit of its own needs,
/// and our limits with them. It goes with its last group. Elsewhere a parent would do nothing but
/// cost a lone launch a quarter of a millisecond. Move-only; not thread-safe.
///
/// v2: processes are born inside through CLONE_INTO_CGROUP. v1: the single-threaded child writes
/// "0" to `tasks`, which (unlike `cgroup.procs`) does not take the global lock whose writers wait
/// for a grace period of 7 ms. Its groups are made apart, when the child is already making its
/// namespaces: there the kernel's memory for those (0.2 MB) is charged to the caller's group.
class SandboxCgroup {
 public:
  /// Makes the group that a process is born into, if the host has v2, and sets its limits. A group
  /// of that name that exists already is removed first, with its processes: the caller owns the
  /// name. The hierarchies of `host` must outlive the result.
  /// Errors: kUnsupported when a limit is asked for that no hierarchy of a host that is probed to
  /// the end can enforce; kPermission and others from the host. On failure nothing stays.
  static Result<SandboxCgroup> create(const CgroupHost& host, const std::string& name,
                                      const CgroupLimits& limits);
  /// Makes those that a process joins, in the same way: of v1. `host` is that of create(), by now
  /// probed to the end.
  Status create_joined(const CgroupHost& host);
  /// Removes what a dead owner left under `name`; nothing there is not an error.
  /// @param deadline  Until when processes that are killed are waited for. The first attempt is
  ///                  made in any case.
  static Status remove_stale(const CgroupHost& host, const std::string& name, Deadline deadline);

  SandboxCgroup(SandboxCgroup&&) = default;
  SandboxCgroup& operator=(SandboxCgroup&&) = default;
  /// Quiet fallback for remove().
  ~SandboxCgroup();

  /// For clone_args.cgroup, or -1 when the host has no v2 hierarchy.
  int clone_into_fd() const;
  /// Descriptors to which the child writes "0", once they are made.
  std::vector<int> join_fds() const;

  Result<CgroupUsage> usage() const;
  /// Removes the groups, with their processes: SIGKILL to each, also to those being forked
  /// meanwhile.
  Status remove();

 private:
  struct Group {
    const CgroupHierarchy* hierarchy = nullptr;
    UniqueFd directory;
    UniqueFd join;  ///< v1: `tasks`, open for writing.
  };
  SandboxCgroup(std::string name, const CgroupLimits& limits)
      : name_(std::move(name)), limits_(limits) {}
  /// kUnsupported when a limit is asked for that no hierarchy of `host` can enforce.
  static Status check_limits(const CgroupHost& host, const CgroupLimits& limits);
  Status add_group(const CgroupHierarchy& hierarchy);
  Status set_limits(const Group& group) const;

  std::string name_;
  CgroupLimits limits_;
  std::vector<Group> groups_;
};

}  // namespace varve::qos
