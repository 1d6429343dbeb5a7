#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <optional>
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
  std::vector<UniqueFd> lowers;  ///< Detached mounts, lowest first.
  int upper_directory = -1;      ///< Holds `upper` and `work`; -1: a tmpfs is made.
  struct stat image_root {};     ///< For a tmpfs upper.
  int cgroup_into = -1;          ///< For CLONE_INTO_CGROUP, or -1.
  UniqueFd empty_namespace;      ///< One that was kept; else it is made.
};

/// What it leaves running.
struct StartedSandbox {
  Child child;
  UniqueFd control;  ///< The parent's end of the socket pair.
};

/// Runs the plan's operations of the host's side, clone3 among them; the child runs its own at the
/// same time. Ends when the child has been given its mounts. The calling process must have one
/// thread; it loses the host's mounts (see enter_empty_namespace) and keeps what it holds open.
///
/// Errors name the operation. When the child failed first, its error is the one returned.
Result<StartedSandbox> start_sandbox(const Plan& plan, HostInputs inputs, ChildContext& context);

/// The error that a kSetupFailed report stands for.
Error setup_error(const Plan& plan, const Report& report);

}  // namespace varve::launcher
