#include "launcher/varvefs_starter.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>

#include "base/clock.h"
#include "base/file_io.h"

namespace varve::launcher {
namespace {

constexpr int64_t kStartTimeoutMs = 20'000;
constexpr int64_t kAnswerTimeoutMs = 120'000;
constexpr char kLingerSeconds[] = "60";
constexpr int kOtherRunsStatus = 13;  // See varvefs(8).
constexpr off_t kLogBytesMax = 256 << 10;

bool is_program(const std::string& path) {
  return ::access(path.c_str(), X_OK) == 0;
}

Result<std::string> find_varvefs() {
  char self[PATH_MAX];
  const ssize_t n = ::readlink("/proc/self/exe", self, sizeof self - 1);
  if (n > 0) {
    const std::string path(self, static_cast<size_t>(n));
    const std::string directory = path.substr(0, path.rfind('/'));
    // The last one is the layout of a build tree.
    for (const char* relative :
         {"/varvefs", "/../libexec/varve/varvefs", "/../sbin/varvefs", "/../fs/varvefs"}) {
      if (is_program(directory + relative)) return directory + relative;
    }
  }
  const char* path = std::getenv("PATH");
  std::string_view rest = path != nullptr ? path : "/usr/sbin:/usr/bin:/sbin:/bin";
  for (;;) {
    const size_t colon = rest.find(':');
    const std::string candidate = std::string(rest.substr(0, colon)) + "/varvefs";
    if (candidate[0] == '/' && is_program(candidate)) return candidate;
    if (colon == std::string_view::npos) break;
    rest.remove_prefix(colon + 1);
  }
  return fail(ErrorCode::kUnavailable, "varvefs is not running and its program is not found");
}

std::string last_line(const std::string& path) {
  auto bytes = read_file(path, 1 << 20);
  if (!bytes) return "";
  std::string_view text = as_text(*bytes);
  while (text.ends_with('\n')) text.remove_suffix(1);
  const size_t start = text.rfind('\n');
  return std::string(start == std::string_view::npos ? text : text.substr(start + 1));
}

/// What an earlier varvefs wrote stays readable: behind it, or in a file beside it.
void set_long_log_aside(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0 || status.st_size <= kLogBytesMax) return;
  (void)::rename(path.c_str(), (path + ".1").c_str());
}

/// In the new process: its own session, no descriptor but the log.
[[noreturn]] void become_varvefs(const std::string& program, const std::string& run_dir, int log) {
  ::setsid();
  if (::chdir("/") != 0) ::_exit(126);
  const int null = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (null < 0 || ::dup2(null, 0) < 0 || ::dup2(log, 1) < 0 || ::dup2(log, 2) < 0) ::_exit(126);
  // Those of the caller, who may wait for the end of a pipe or hold a lock by one.
  if (::syscall(SYS_close_range, 3, ~0U, 0) != 0) ::_exit(126);
  const char* argv[] = {"varvefs",  "--run-dir",    run_dir.c_str(),
                        "--linger", kLingerSeconds, nullptr};
  ::execv(program.c_str(), const_cast<char**>(argv));
  ::_exit(127);
}

Result<pid_t> spawn(const std::string& program, const std::string& run_dir, int log) {
  const pid_t pid = ::fork();
  if (pid < 0) return fail_errno("starting varvefs");
  if (pid == 0) become_varvefs(program, run_dir, log);
  return pid;
}

Result<ControlClient> start(const std::string& run_dir) {
  VARVE_ASSIGN(const std::string program, find_varvefs());
  const std::string log_path = run_dir + "/varvefs.log";
  set_long_log_aside(log_path);
  VARVE_ASSIGN(const UniqueFd log,
               in_context(open_file(log_path, O_WRONLY | O_CREAT | O_APPEND, 0600), "--run-dir"));
  VARVE_ASSIGN(pid_t pid, spawn(program, run_dir, log.get()));
  const Deadline deadline = deadline_after_ms(kStartTimeoutMs);
  bool has_ended = false;
  int status = 0;
  for (;;) {
    auto client = connect_to_varvefs(run_dir);
    // Ending with success means that it went into the background. That is waited for, so that no
    // zombie of it stays as long as the command runs.
    has_ended = has_ended || ::waitpid(pid, &status, WNOHANG) == pid;
    // The run directory has a varvefs that does not answer: one that is about to, whose starter was
    // killed, or one that is about to end.
    const bool is_other = has_ended && WIFEXITED(status) && WEXITSTATUS(status) == kOtherRunsStatus;
    if (client && has_ended && (status == 0 || is_other)) return client;
    if (!client && client.error().code() != ErrorCode::kUnavailable) return client;
    if ((has_ended && status != 0 && !is_other) || MonotonicClock::now() > deadline) {
      return fail(ErrorCode::kUnavailable, quoted(program) +
                                               (has_ended ? " ended" : " does not answer") + ": " +
                                               last_line(log_path));
    }
    const timespec pause{0, is_other ? 20'000'000 : 2'000'000};
    ::nanosleep(&pause, nullptr);
    if (!is_other) continue;
    VARVE_ASSIGN(pid, spawn(program, run_dir, log.get()));
    has_ended = false;
  }
}

}  // namespace

Result<ControlClient> connect_to_varvefs(const std::string& run_dir) {
  auto client = ControlClient::connect(run_dir + "/control.sock", kAnswerTimeoutMs);
  if (!client && client.error().code() != ErrorCode::kUnavailable) {
    return fail(std::move(client).error(), "--run-dir");
  }
  return client;
}

Result<ControlClient> connect_or_start_varvefs(const std::string& run_dir) {
  auto client = connect_to_varvefs(run_dir);
  if (client || client.error().code() != ErrorCode::kUnavailable) return client;
  VARVE_TRY(in_context(make_directories(run_dir, 0755), "--run-dir"));
  VARVE_ASSIGN(const UniqueFd lock,
               in_context(open_file(run_dir + "/start.lock", O_RDWR | O_CREAT, 0600), "--run-dir"));
  while (::flock(lock.get(), LOCK_EX) != 0) {
    if (errno != EINTR) return fail_errno("locking " + quoted(run_dir + "/start.lock"));
  }
  // Whoever held the lock may have started it.
  client = connect_to_varvefs(run_dir);
  if (client || client.error().code() != ErrorCode::kUnavailable) return client;
  return start(run_dir);
}

}  // namespace varve::launcher
