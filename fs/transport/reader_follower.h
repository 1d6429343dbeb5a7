#pragma once

#include <cstdint>
#include <optional>

#include "fs/cpu_placement.h"

namespace varve::fs {

/// Takes its thread to the CPU of the reader that it serves. A reader waits for each answer, so the
/// two never want a CPU at the same time, and handing over between two CPUs takes an interrupt,
/// which costs more than most answers. While several readers are served by turns the thread stays
/// where it was before. Loop-local.
class ReaderFollower {
 public:
  /// A reader is followed from so many requests in a row on.
  static constexpr uint32_t kProvenCount = 16;
  /// And looked for again after so many more.
  static constexpr uint32_t kPeriod = 64;

  /// Thread `reader` made the request that came just now; 0 = not known.
  void on_request(uint32_t reader);

 private:
  uint32_t reader_ = 0;
  uint32_t count_ = 0;  // Requests of the reader in a row.
  std::optional<ThreadWatch> watch_;
  std::optional<int> home_;  // Where the thread was before it followed.
};

}  // namespace varve::fs
