#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/unique_fd.h"
#include "launcher/child.h"
#include "launcher/child_protocol.h"
#include "launcher/plan.h"

namespace varve::launcher {

/// A process and the descriptor that names it for sure. Killed and reaped when the object goes.
class Child {
 public:
  Child() = default;
  Child(pid_t pid, UniqueFd pidfd) : pid_(pid), pidfd_(std::move(pidfd)) {}
  Child(Child&& other) noexcept
      : pid_(std::exchange(other.pid_, -1)), pidfd_(std::move(other.pidfd_)) {}
  Child& operator=(Child&& other) noexcept;
  ~Child();

  pid_t pid() const { return pid_; }
  int pidfd() const { return pidfd_.get(); }
  explicit operator bool() const { return pid_ > 0; }
  void signal(int number) const;
  /// Waits for the end. @return the wait status.
  int wait();

 private:
  pid_t pid_ = -1;
  UniqueFd pidfd_;
};

/// What the host's side of a plan starts from.
struct HostInputs {
  int upper_directory = -1;  ///< Holds `upper` and `work`; -1: a tmpfs is made.
  int cgroup_into = -1;      ///< For CLONE_INTO_CGROUP, or -1.
  UniqueFd empty_namespace;  ///< One that was kept; else it is made.
};

/// What it leaves running.
struct StartedSandbox {
  Child child;
  UniqueFd control;  ///< The parent's end of the socket pair.
};

/// The host's side of a start, in two steps: the child makes its namespaces, the slowest part of a
/// start, while its image is still being asked for. The calling process must have one thread; from
/// begin() on it has lost the host's mounts (see enter_empty_namespace) and keeps what it holds
/// open.
///
/// Errors name the operation. When the child failed first, its error is the one returned.
class SandboxStart {
 public:
  /// `plan` comes from begin_plan(). It, and `context`, must outlive this.
  SandboxStart(const Plan& plan, HostInputs inputs, ChildContext& context)
      : plan_(plan), inputs_(std::move(inputs)), context_(context) {}

  /// Runs what the plan has so far, clone3 as the last; the child runs its own at the same time.
  Status begin();
  /// Runs what finish_plan() has added to the plan, and gives the child its mounts.
  /// @param lowers  Detached mounts of the layers, lowest first.
  /// @param joins   `tasks` files of the v1 groups, for the child.
  Result<StartedSandbox> finish(std::vector<UniqueFd> lowers, std::vector<int> joins);

 private:
  Status run_operations();
  Status run(const Operation& operation);
  Status open_upper(const Operation& operation);
  Status clone_child(const Operation& operation);
  Status limit_cores(uint64_t bytes);
  Status clone_host_file(const Operation& operation);
  Status write_id_maps();
  Status mount_overlay(const Operation& operation);
  Status idmap_lower(const Operation& operation);
  Status idmap_upper(const Operation& operation);
  Status make_dev(const Operation& operation);
  Status lend_pipes(uint32_t uid);
  Status send_mounts();
  Status send_texts(const std::string& texts);
  /// They are the child's now, and end with it: nothing here may keep them busy.
  void release_mounts();
  /// A failure of ours may be the echo of the child's, which is the one to tell.
  Error first_cause(Error own);

  const Plan& plan_;
  HostInputs inputs_;
  ChildContext& context_;
  size_t next_operation_ = 0;
  std::vector<UniqueFd> lowers_;
  std::vector<int> joins_;
  struct stat image_root_ {};
  UniqueFd upper_;  // Mount whose root holds `upper` and `work`.
  UniqueFd etc_;
  UniqueFd user_namespace_;
  UniqueFd root_;
  UniqueFd dev_;
  UniqueFd control_;
  UniqueFd child_control_;
  Child child_;
};

/// The error that a kSetupFailed report stands for.
Error setup_error(const Plan& plan, const Report& report);

}  // namespace varve::launcher
