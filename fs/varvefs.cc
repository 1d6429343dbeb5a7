#include "fs/varvefs.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <filesystem>
#include <map>

#include "base/file_io.h"
#include "fs/spdlog_sink.h"

namespace varve::fs {
namespace {

struct CommandLine {
  DaemonOptions daemon;
  std::string log_file;
  const char* log_option = "--log-file";  ///< Which option has made it so.
  bool foreground = false;
};

constexpr uint64_t kMiB = 1 << 20;

/// Replaces the name of a transport by its number, which is how an enumeration is parsed.
std::string to_transport(std::string& text) {
  static const std::map<std::string, TransportKind> kTransports = {
      {"auto", TransportKind::kAuto}, {"ring", TransportKind::kRing}, {"dev", TransportKind::kDev}};
  const auto found = kTransports.find(text);
  if (found == kTransports.end()) return varve::quoted(text) + " is not auto, ring or dev";
  text = std::to_string(static_cast<int>(found->second));
  return "";
}

void add_options(CLI::App& app, CommandLine& line) {
  DaemonOptions& daemon = line.daemon;
  app.set_version_flag("--version", std::string("varvefs ") + version());
  app.add_option("--run-dir", daemon.run_directory,
                 "Directory of the control socket, the lock and the default mount point")
      ->capture_default_str();
  app.add_option("--mountpoint", daemon.mountpoint, "Where to mount (default: RUN-DIR/mnt)");
  app.add_option("--spool-dir", daemon.spool_directory,
                 "Directory for local copies of metadata, files without names")
      ->capture_default_str();
  app.add_option("--transport", daemon.transport, "How requests reach the daemon: auto, ring, dev")
      ->transform(CLI::Validator(to_transport, ""))
      ->default_str("auto");
  app.add_option_function<uint64_t>(
         "--cache-memory", [&daemon](uint64_t mib) { daemon.cache_bytes_max = mib * kMiB; },
         "Decompressed chunks kept in memory, MiB")
      ->check(CLI::Range(uint64_t{1}, uint64_t{1} << 20))
      ->default_str(std::to_string(daemon.cache_bytes_max / kMiB));
  app.add_option("--read-deadline-ms", daemon.read_deadline_ms,
                 "After this long a read fails with EIO")
      ->check(CLI::Range(int64_t{1}, int64_t{3'600'000}))
      ->capture_default_str();
  app.add_option("--attach-deadline-ms", daemon.attach_deadline_ms,
                 "After this long an attach fails")
      ->check(CLI::Range(int64_t{1}, int64_t{3'600'000}))
      ->capture_default_str();
  app.add_option("--fetch-threads", daemon.fetch_thread_count,
                 "Threads that may wait for one store at the same time")
      ->check(CLI::Range(size_t{1}, size_t{1024}))
      ->capture_default_str();
  app.add_option("--readahead-kb", daemon.readahead_kb, "Read-ahead of the mount, KiB")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
  app.add_option("--idle", daemon.idle_s,
                 "Keep a layer that nobody has attached any more for this many seconds; 0 = do not")
      ->check(CLI::Range(int64_t{0}, int64_t{31'536'000}))
      ->capture_default_str();
  app.add_option("--linger", daemon.linger_s,
                 "End after this many seconds without an attach (default: never)")
      ->check(CLI::Range(int64_t{0}, int64_t{31'536'000}));
  app.add_option("--log-file", line.log_file,
                 "Where to log (default: stderr in the foreground, else RUN-DIR/varvefs.log)");
  app.add_flag("--foreground", line.foreground, "Stay in the foreground");
}

void make_absolute(std::string& path) {
  if (!path.empty()) path = std::filesystem::absolute(path).lexically_normal().string();
}

int report(const ToolIo& io, const Error& error) {
  std::fprintf(io.err, "varvefs: %s\n", error.to_string().c_str());
  return error_code_to_exit_status(error.code());
}

int run(const CommandLine& line, const ToolIo& io, const std::function<void()>& ready) {
  auto log = in_context(make_spdlog_sink(line.log_file), line.log_option);
  if (!log) return report(io, log.error());
  const auto ended = run_daemon(line.daemon, *log, ready);
  if (!ended) return report(io, ended.error());
  if (!*ended) {
    std::fflush(nullptr);
    _exit(0);
  }
  return 0;
}

// The child has no terminal any more, and nothing of what the caller had open on 0, 1 and 2.
void detach_from_terminal() {
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  if (null < 0) return;
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) dup2(null, fd);
  close(null);
}

// The parent returns when the child is ready (0) or has ended (its status).
int run_in_background(CommandLine& line, const ToolIo& io) {
  if (line.log_file.empty()) {
    Status made = in_context(make_directories(line.daemon.run_directory, 0700), "--run-dir");
    if (!made) return report(io, made.error());
    line.log_file = line.daemon.run_directory + "/varvefs.log";
    line.log_option = "--run-dir";
  }
  int ends[2];
  if (pipe2(ends, O_CLOEXEC)) return report(io, Error::from_errno(errno, "pipe"));
  UniqueFd read_end(ends[0]);
  UniqueFd write_end(ends[1]);
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child < 0) return report(io, Error::from_errno(errno, "fork"));
  if (child == 0) {
    read_end.reset();
    setsid();
    if (chdir("/")) _exit(1);
    const int status = run(line, io, [&] {
      const char byte = 'r';
      // A parent that is gone needs no word.
      if (write(write_end.get(), &byte, 1) == 1) write_end.reset();
      detach_from_terminal();
    });
    std::fflush(nullptr);
    _exit(status);
  }
  write_end.reset();
  char byte;
  ssize_t size;
  do {
    size = read(read_end.get(), &byte, 1);
  } while (size < 0 && errno == EINTR);
  if (size == 1) return 0;
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

int varvefs_main(int argc, const char* const* argv, const ToolIo& io,
                 const DaemonOptions& defaults) {
  CommandLine line;
  line.daemon = defaults;
  CLI::App app("Serves image layers as a filesystem, fetched when they are read", "varvefs");
  add_options(app, line);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {
    std::fprintf(io.out, "%s",
                 success.get_name() == "CallForVersion"
                     ? (std::string(success.what()) + "\n").c_str()
                     : app.help().c_str());
    return 0;
  } catch (const CLI::ParseError& error) {
    std::fprintf(io.err, "varvefs: %s\n", error.what());
    return error_code_to_exit_status(ErrorCode::kInvalidArgument);
  }
  make_absolute(line.daemon.run_directory);
  make_absolute(line.daemon.mountpoint);
  make_absolute(line.daemon.spool_directory);
  make_absolute(line.log_file);
  if (line.foreground) return run(line, io, [] {});
  return run_in_background(line, io);
}

}  // namespace varve::fs
