#pragma once

#include <cstdint>
#include <optional>

#include "base/unique_fd.h"

/// Where threads run. A thread that wakes is not always put where it is best: some kernels let it
/// wait behind another one on the CPU where it slept while the next CPU is idle. All of this is
/// about one moment; no thread is kept from going elsewhere afterwards.
namespace varve::fs {

/// Moves the calling thread to `cpu`; false when it may not run there.
bool move_to_cpu(int cpu);
/// Moves the calling thread away from `cpu` if it runs there; false when it may run nowhere else.
bool leave_cpu(int cpu);

/// Lets the calling thread run wherever the process's first thread may, whatever CPU the thread
/// that started it is bound to; false when nothing changes.
bool allow_cpus_of_process();

/// Tells where one thread, of any process, runs. Loop-local.
class ThreadWatch {
 public:
  /// @param thread_id  As this process sees it.
  explicit ThreadWatch(uint32_t thread_id);

  /// The CPU that the thread runs on or ran on last; nothing when it is gone or hidden. One small
  /// read.
  std::optional<int> cpu() const;

 private:
  UniqueFd stat_;
};

}  // namespace varve::fs
