#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/error.h"
#include "fs/fetch/store_session.h"
#include "fs/log.h"
#include "fs/transport/session.h"

namespace varve::fs {

/// How varvefs runs: its command line, and seams for tests.
struct DaemonOptions {
  std::string run_directory = "/run/varve";
  std::string mountpoint;  ///< "" = `mnt` in the run directory.
  std::string spool_directory = "/var/tmp";
  TransportKind transport = TransportKind::kAuto;
  uint64_t cache_bytes_max = 256 << 20;
  int64_t read_deadline_ms = 30'000;
  int64_t attach_deadline_ms = 20'000;
  /// How long a layer that nobody has attached any more stays attached and mounted; 0 = not at all.
  int64_t idle_s = 60;
  int64_t linger_s = -1;  ///< Ends after so many seconds without an attach; negative = never.
  int readahead_kb = 1024;
  size_t fetch_thread_count = 8;  ///< For each store.

  StoreOpener open_store;                ///< Default: chunkstore::open_store.
  std::function<Status()> probe_ring;    ///< Default: asks the kernel.
  bool mount_with_loop_devices = false;  ///< As on kernels before 6.12.
  bool keep_mounts_attached = false;     ///< As on kernels before 6.15.
};

/// Runs the daemon until SIGTERM, SIGINT, the end of its linger time, or an unmount from outside.
/// While the process has one thread; sets process-wide limits and signal handling.
///
/// @param ready  Called once the control socket answers.
/// Errors: kBusy (another varvefs has the run directory), what mounting or listening said.
/// @return  False when a thread still hangs in a store: the process must end by _exit(2).
Result<bool> run_daemon(const DaemonOptions& options, const LogSink& log,
                        const std::function<void()>& ready);

/// "0.1.0".
const char* version();

}  // namespace varve::fs
