#pragma once

#include <map>
#include <string>

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
  /// Reads the counters of all layers. To be called before the image is asked for: what its attach
  /// fetches belongs to the run.
  Status begin(ControlClient& client);
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
  using CountersByLayer = std::map<std::string, Counters>;
  static Result<CountersByLayer> read_counters(ControlClient& client);

  CountersByLayer before_;  // Of those that were attached already.
};

}  // namespace varve::launcher
