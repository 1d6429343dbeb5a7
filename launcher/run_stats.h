#pragma once

#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"
#include "launcher/control_client.h"
#include "launcher/image_info.h"
#include "qos/cgroup.h"

namespace varve::launcher {

/// The counters of --stats: varvefs' per-layer counters before and after a run, subtracted, beside
/// what the launcher and the cgroup measured. varvefs counts for all users of a layer: a run beside
/// others of the same image sees theirs as well.
class RunStats {
 public:
  /// Reads the counters of the image's layers as they are now.
  Status begin(ControlClient& client, const ImageInfo& image);
  /// Reads them again and writes the document. Times are CLOCK_MONOTONIC.
  struct Times {
    uint64_t start_ns = 0;
    uint64_t ready_ns = 0;
    uint64_t exit_ns = 0;
  };
  Result<std::string> finish(ControlClient& client, const ImageInfo& image, const Times& times,
                             const qos::CgroupUsage& usage, int exit_status) const;

 private:
  struct Counters {
    uint64_t touched_bytes = 0;
    uint64_t fetched_bytes = 0;
  };
  static Result<Counters> read_counters(ControlClient& client, const std::string& layer);

  std::vector<Counters> before_;
};

}  // namespace varve::launcher
