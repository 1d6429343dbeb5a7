#include "fs/daemon.h"

#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <exception>
#include <iterator>

#include "base/clock.h"
#include "base/file_io.h"
#include "chunkstore/store/store.h"
#include "fs/control/attach_service.h"
#include "fs/control/control_api.h"
#include "fs/control/control_server.h"
#include "fs/fuse/mount_point.h"
#include "fs/mounter/mounter.h"
#include "fs/view/file_system.h"

namespace varve::fs {
namespace {

// How long the end may wait for threads that are inside a store.
constexpr int64_t kStopDeadlineMs = 3000;
// Two arenas: memory of many threads does not spread over many heaps.
constexpr int kMallocArenaCountMax = 2;
constexpr mode_t kRunDirectoryMode = 0700;
constexpr int kEndSignals[] = {SIGTERM, SIGINT};

void raise_descriptor_limit() {
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit)) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

/// The daemon's parts, in the order they are made; they end in the opposite order.
class Daemon {
 public:
  Daemon(const DaemonOptions& options, const LogSink& log) : options_(options), log_(log) {}

  Status start();
  /// Serves; returns when it is time to end.
  void run(const std::function<void()>& ready);
  /// False when a thread still hangs in a store.
  bool stop();

 private:
  Status take_run_directory();
  Status mount();
  void start_mounter();
  Status start_session();
  Status start_control();
  bool should_end();
  /// Not the end: somebody uses this. False, for should_end().
  bool go_on(MonotonicClock::time_point now);

  const DaemonOptions options_;
  const LogSink log_;
  std::string mountpoint_;
  UniqueFd lock_;
  std::atomic<bool> session_ended_{false};
  MonotonicClock::time_point last_used_ = MonotonicClock::now();

  std::unique_ptr<MountPoint> mount_point_;
  std::unique_ptr<Mounter> mounter_;
  std::unique_ptr<ReadService> reads_;
  NodeTable nodes_;
  std::unique_ptr<FileSystem> file_system_;
  std::unique_ptr<Session> session_;
  std::unique_ptr<AttachService> attaches_;
  std::unique_ptr<ControlApi> api_;
  std::unique_ptr<ControlServer> server_;
};

Status Daemon::take_run_directory() {
  VARVE_TRY(in_context(make_directories(options_.run_directory, kRunDirectoryMode), "--run-dir"));
  const std::string path = options_.run_directory + "/varvefs.lock";
  VARVE_ASSIGN(lock_, in_context(open_file(path, O_RDWR | O_CREAT, 0600), "--run-dir"));
  if (flock(lock_.get(), LOCK_EX | LOCK_NB)) {
    if (errno != EWOULDBLOCK) return fail_errno("locking '" + path + "'");
    return fail(ErrorCode::kBusy, "another varvefs runs in '" + options_.run_directory + "'");
  }
  return {};
}

Status Daemon::mount() {
  mountpoint_ = resolved_mount_point(options_.mountpoint.empty() ? options_.run_directory + "/mnt"
                                                                 : options_.mountpoint);
  VARVE_TRY(remove_stale_mounts(mountpoint_));
  VARVE_TRY(in_context(make_directories(mountpoint_, kRunDirectoryMode), "--mountpoint"));
  VARVE_ASSIGN(MountPoint mounted, MountPoint::create(mountpoint_));
  mount_point_ = std::make_unique<MountPoint>(std::move(mounted));
  return {};
}

void Daemon::start_mounter() {
  if (geteuid() != 0) return;
  auto mounter = Mounter::start({mountpoint_, options_.run_directory,
                                 options_.mount_with_loop_devices, options_.keep_mounts_attached},
                                log_);
  if (mounter) {
    mounter_ = std::move(*mounter);
  } else {
    log_(LogLevel::kWarning, "", "no kernel mounts: " + mounter.error().to_string());
  }
}

Status Daemon::start_session() {
  reads_ = std::make_unique<ReadService>(
      ReadServiceOptions{options_.cache_bytes_max, options_.read_deadline_ms}, log_);
  file_system_ = std::make_unique<FileSystem>(nodes_, *reads_, log_);
  SessionOptions session_options;
  session_options.transport = options_.transport;
  session_options.probe_ring = options_.probe_ring;
  // A loop device reads for many processes, one after the other if it has to wait for each answer.
  session_options.async_direct_reads = mounter_ != nullptr && mounter_->uses_loop_devices();
  VARVE_ASSIGN(session_,
               Session::start(mount_point_->take_fuse_fd(), *file_system_,
                              std::move(session_options), [this] { session_ended_ = true; }));
  file_system_->set_opens_are_needless(session_->opens_are_needless());
  std::string text = std::string("transport ") + transport_name(session_->transport());
  if (!session_->fallback_reason().empty()) {
    text += " (no ring: " + session_->fallback_reason() + ")";
  }
  log_(LogLevel::kInfo, "", text);
  Status readahead = mount_point_->set_readahead_kb(options_.readahead_kb);
  if (!readahead) {
    log_(LogLevel::kWarning, "", "setting the read-ahead: " + readahead.error().to_string());
  }
  return {};
}

Status Daemon::start_control() {
  AttachServiceOptions attach_options;
  attach_options.spool_directory = options_.spool_directory;
  attach_options.attach_deadline_ms = options_.attach_deadline_ms;
  attach_options.idle_s = options_.idle_s;
  attach_options.thread_count_for_each_store = options_.fetch_thread_count;
  attach_options.open_store = options_.open_store;
  if (!attach_options.open_store) {
    attach_options.open_store = [](const std::string& url) {
      return chunkstore::open_store(url, false);
    };
  }
  attaches_ = std::make_unique<AttachService>(std::move(attach_options), nodes_, *reads_, *session_,
                                              mounter_.get(), log_);
  VARVE_ASSIGN(KeptNamespaces namespaces,
               KeptNamespaces::create(options_.run_directory + "/namespaces"));
  api_ = std::make_unique<ControlApi>(
      DaemonFacts{version(), mountpoint_, transport_name(session_->transport()),
                  session_->fallback_reason()},
      std::move(namespaces), *attaches_, nodes_, *reads_);
  auto server = ControlServer::listen(options_.run_directory + "/control.sock", *api_,
                                      options_.attach_deadline_ms, log_);
  VARVE_ASSIGN(server_, in_context(std::move(server), "--run-dir"));
  return {};
}

Status Daemon::start() {
  raise_descriptor_limit();
  mallopt(M_ARENA_MAX, kMallocArenaCountMax);
  // Now, and not when the first image is attached.
  VARVE_TRY(in_context(open_unlinked_temp(options_.spool_directory), "--spool-dir"));
  VARVE_TRY(take_run_directory());
  VARVE_TRY(mount());
  start_mounter();
  VARVE_TRY(start_session());
  return start_control();
}

bool Daemon::should_end() {
  if (session_ended_) {
    log_(LogLevel::kWarning, "", "'" + mountpoint_ + "' was unmounted");
    return true;
  }
  attaches_->expire_idle();
  if (options_.linger_s < 0) return false;
  const auto now = MonotonicClock::now();
  // A connection may be about to attach.
  if (server_->connection_count() > 0 || api_->attachment_count() > 0) return go_on(now);
  if (now - last_used_ < std::chrono::seconds(options_.linger_s)) return false;
  attaches_->drop_idle();
  // Layers that were detached may still be mounted or open somewhere: the kernel knows.
  if (!server_->is_hidden()) {
    if (mount_point_->is_in_use()) return go_on(now);
    // Who connects just now is served, and seen the next time; nobody else meets one that ends.
    server_->hide();
    return false;
  }
  const auto unmounted = mount_point_->unmount_if_unused();
  if (unmounted && *unmounted) return true;
  if (!unmounted) log_(LogLevel::kWarning, "unmount", unmounted.error().to_string());
  return go_on(now);
}

bool Daemon::go_on(MonotonicClock::time_point now) {
  server_->show();
  last_used_ = now;
  return false;
}

void Daemon::run(const std::function<void()>& ready) {
  last_used_ = MonotonicClock::now();
  ready();
  const int signal_number = server_->run({std::begin(kEndSignals), std::end(kEndSignals)},
                                         [this] { return should_end(); });
  log_(LogLevel::kInfo, "",
       signal_number == 0 ? "ending" : "ending on signal " + std::to_string(signal_number));
}

bool Daemon::stop() {
  const Deadline deadline = deadline_after_ms(kStopDeadlineMs);
  // Nobody waits for a store any more; what comes from now on fails at once.
  if (reads_ != nullptr) reads_->abort_all();
  if (mount_point_ != nullptr) {
    Status unmounted = mount_point_->unmount();
    if (!unmounted) log_(LogLevel::kWarning, "", unmounted.error().to_string());
  }
  if (api_ != nullptr) api_->detach_all();
  const bool all_ended = attaches_ == nullptr || attaches_->stop(deadline);
  // The server stays until the end: while it does, a second signal does not cut this short.
  mounter_.reset();
  if (session_ != nullptr) session_->stop();
  return all_ended;
}

/// Keeps back what would end the process, while it could leave a mount behind. The server lets it
/// come. For one thread, and those that it starts.
class HeldSignals {
 public:
  HeldSignals() {
    sigset_t held;
    sigemptyset(&held);
    for (const int number : kEndSignals) sigaddset(&held, number);
    pthread_sigmask(SIG_BLOCK, &held, &before_);
  }
  ~HeldSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  HeldSignals(const HeldSignals&) = delete;
  HeldSignals& operator=(const HeldSignals&) = delete;

 private:
  sigset_t before_;
};

// The libraries say by exceptions that there are no descriptors or threads for them.
Status start(Daemon& daemon) {
  try {
    return daemon.start();
  } catch (const std::exception& error) {
    return fail(ErrorCode::kUnavailable, std::string("starting: ") + error.what());
  }
}

}  // namespace

const char* version() {
  return VARVE_VERSION;
}

Result<bool> run_daemon(const DaemonOptions& options, const LogSink& log,
                        const std::function<void()>& ready) {
  const HeldSignals held;
  // Not destroyed while a thread of it hangs in a store.
  auto daemon = std::make_unique<Daemon>(options, log);
  Status started = start(*daemon);
  if (started) daemon->run(ready);
  const bool all_ended = daemon->stop();
  if (!all_ended) {
    log(LogLevel::kWarning, "", "a store still hangs; leaving its threads behind");
    static_cast<void>(daemon.release());
  }
  if (!started) return tl::unexpected(std::move(started).error());
  return all_ended;
}

}  // namespace varve::fs
