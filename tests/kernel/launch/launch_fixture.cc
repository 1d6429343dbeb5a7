#include "launch_fixture.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <sstream>

#include "base/file_io.h"
#include "base/remove_tree.h"

namespace varve::launcher {
namespace {

constexpr char kSuiteParent[] = "/var/tmp";
constexpr char kSuitePrefix[] = "varve-launch-";

struct Suite {
  explicit Suite(TempDir dir) : directory(std::move(dir)) {}
  TempDir directory;
  UniqueFd owner;  // Locked: see remove_stale_suites().
  pid_t fake = -1;
  UniqueFd fake_input;
};
std::unique_ptr<Suite> suite;

int decode(int status) {
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

std::string read_all(int fd) {
  std::string text;
  char buffer[4096];
  for (;;) {
    const ssize_t n = ::read(fd, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return text;
    text.append(buffer, static_cast<size_t>(n));
  }
}

pid_t spawn(const std::vector<std::string>& words, int in, int out, int err) {
  std::vector<char*> argv;
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in, 0);
  posix_spawn_file_actions_adddup2(&actions, out, 1);
  posix_spawn_file_actions_adddup2(&actions, err, 2);
  pid_t pid = -1;
  if (::posix_spawnp(&pid, argv[0], &actions, nullptr, argv.data(), environ) != 0) pid = -1;
  posix_spawn_file_actions_destroy(&actions);
  return pid;
}

std::vector<std::string> list(const std::string& path) {
  std::vector<std::string> names;
  const std::unique_ptr<DIR, int (*)(DIR*)> stream(::opendir(path.c_str()), ::closedir);
  if (!stream) return names;
  while (const dirent* entry = ::readdir(stream.get())) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += word + "\n";
  return text;
}

}  // namespace

UniqueFd own_suite(const std::string& directory) {
  const std::string path = directory + "/owner";
  UniqueFd owner(::open((path + ".new").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!owner || ::flock(owner.get(), LOCK_EX | LOCK_NB) != 0 ||
      ::rename((path + ".new").c_str(), path.c_str()) != 0) {
    return UniqueFd();
  }
  return owner;
}

void remove_stale_suites(const std::string& parent, const std::string& prefix) {
  for (const std::string& name : list(parent)) {
    if (!name.starts_with(prefix)) continue;
    const std::string directory = parent + "/" + name;
    // Without an owner it is being made; with one that is locked it is in use.
    const UniqueFd owner(::open((directory + "/owner").c_str(), O_RDWR | O_CLOEXEC));
    if (!owner || ::flock(owner.get(), LOCK_EX | LOCK_NB) != 0) continue;
    (void)remove_tree(directory);
  }
}

std::string varve_program() {
  return VARVE_PROGRAM;
}

std::string LaunchTest::directory() {
  return suite->directory.path();
}

void LaunchTest::make_image(const std::string& name, const std::string& tree) {
  const Result result =
      execute({"mkfs.erofs", "--quiet", directory() + "/images/" + name + ".erofs", tree});
  ASSERT_EQ(result.status, 0) << result.err;
}

void LaunchTest::SetUpTestSuite() {
  if (::geteuid() != 0) {
    std::printf("SKIP: root: sandboxes need root\n");
    std::exit(77);
  }
  remove_stale_suites(kSuiteParent, kSuitePrefix);
  auto directory = TempDir::create(kSuitePrefix, kSuiteParent);
  ASSERT_TRUE(directory);
  suite = std::make_unique<Suite>(std::move(*directory));
  suite->owner = own_suite(suite->directory.path());
  ASSERT_TRUE(suite->owner);
  const std::string root = suite->directory.path() + "/base";
  for (const char* name : {"bin", "proc", "sys", "dev", "tmp", "etc", "root", "run", "home/me"}) {
    ASSERT_TRUE(make_directories(root + "/" + name));
  }
  for (const char* name : {"/images", "/run"}) {
    ASSERT_TRUE(make_directories(suite->directory.path() + name));
  }
  ASSERT_EQ(execute({"cp", "/bin/busybox", PROBE_PROGRAM, root + "/bin/"}).status, 0);
  ASSERT_EQ(execute({"chroot", root, "/bin/busybox", "--install", "-s", "/bin"}).status, 0);
  ASSERT_EQ(::chmod((root + "/tmp").c_str(), 01777), 0);
  ASSERT_TRUE(write_file_atomic(
      root + "/etc/passwd",
      as_bytes("root:x:0:0:root:/root:/bin/sh\nme:x:1000:1000::/home/me:/bin/sh\n")));
  ASSERT_TRUE(
      write_file_atomic(root + "/etc/group", as_bytes("root:x:0:\nme:x:1000:\nextra:x:2000:me\n")));
  ASSERT_TRUE(write_file_atomic(root + "/etc/shadow", as_bytes("secret\n"), 0600));
  ASSERT_EQ(::chown((root + "/home/me").c_str(), 1000, 1000), 0);
  make_image("base", root);

  int input[2];
  ASSERT_EQ(::pipe2(input, O_CLOEXEC), 0);
  suite->fake_input.reset(input[1]);
  suite->fake = spawn({FAKE_VARVEFS_PROGRAM, "--run-dir", suite->directory.path() + "/run",
                       "--images", suite->directory.path() + "/images"},
                      input[0], 1, 2);
  ::close(input[0]);
  ASSERT_GT(suite->fake, 0);
  struct stat status;
  const std::string socket = suite->directory.path() + "/run/control.sock";
  while (::stat(socket.c_str(), &status) != 0) ::usleep(1000);
}

void LaunchTest::TearDownTestSuite() {
  if (!suite) return;
  suite->fake_input.reset();
  if (suite->fake > 0) ::waitpid(suite->fake, nullptr, 0);
  suite.reset();
}

std::map<std::string, std::string> LaunchTest::snapshot() {
  std::map<std::string, std::string> state;
  std::ifstream mounts("/proc/self/mountinfo");
  std::stringstream text;
  text << mounts.rdbuf();
  state["mounts"] = text.str();
  state["state directory"] = joined(list(state_dir()));
  state["slots"] = joined(list(run_dir() + "/sandboxes"));
  // Only groups of this suite's run directory: others may run sandboxes at the same time.
  struct stat pool {};
  (void)::stat((run_dir() + "/sandboxes").c_str(), &pool);
  const std::string prefix =
      "varve-" + std::to_string(pool.st_dev) + "-" + std::to_string(pool.st_ino) + "-";
  for (const char* hierarchy : {"", "/memory", "/cpu", "/pids", "/freezer", "/unified"}) {
    for (const std::string& name : list(std::string("/sys/fs/cgroup") + hierarchy)) {
      if (name.starts_with(prefix)) state["cgroups"] += std::string(hierarchy) + "/" + name + "\n";
    }
  }
  return state;
}

void LaunchTest::SetUp() {
  before_ = snapshot();
}

void LaunchTest::TearDown() {
  auto after = snapshot();
  // Mount tables of other suites on the machine change meanwhile: only what names ours counts.
  const auto ours = [](const std::string& mounts) {
    std::string text;
    std::istringstream lines(mounts);
    for (std::string line; std::getline(lines, line);) {
      if (line.find(directory()) != std::string::npos ||
          line.find("overlay") != std::string::npos) {
        text += line + "\n";
      }
    }
    return text;
  };
  EXPECT_EQ(ours(before_["mounts"]), ours(after["mounts"]));
  for (const char* what : {"state directory", "slots", "cgroups"})
    EXPECT_EQ(before_[what], after[what]) << what;
}

std::vector<std::string> LaunchTest::command(const std::vector<std::string>& args) {
  std::vector<std::string> words{VARVE_PROGRAM, "run",         "--run-dir",
                                 run_dir(),     "--state-dir", state_dir()};
  words.insert(words.end(), args.begin(), args.end());
  return words;
}

LaunchTest::Result LaunchTest::execute(const std::vector<std::string>& words) {
  int out[2], err[2];
  if (::pipe2(out, O_CLOEXEC) != 0 || ::pipe2(err, O_CLOEXEC) != 0) return {};
  const UniqueFd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  const pid_t pid = spawn(words, null.get(), out[1], err[1]);
  ::close(out[1]);
  ::close(err[1]);
  Result result;
  // Errors are short: they fit into the pipe while the output is read.
  result.out = read_all(out[0]);
  result.err = read_all(err[0]);
  ::close(out[0]);
  ::close(err[0]);
  int status = 0;
  if (pid > 0 && ::waitpid(pid, &status, 0) == pid) result.status = decode(status);
  return result;
}

LaunchTest::Result LaunchTest::run(const std::vector<std::string>& args) {
  return execute(command(args));
}

LaunchTest::Result LaunchTest::sh(const std::string& script, std::vector<std::string> options,
                                  const std::string& image) {
  options.insert(options.end(), {image, "--", "/bin/sh", "-c", script});
  return run(options);
}

LaunchTest::Running LaunchTest::start(const std::vector<std::string>& args) {
  int out[2];
  Running running;
  if (::pipe2(out, O_CLOEXEC) != 0) return running;
  const UniqueFd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  running.pid = spawn(command(args), null.get(), out[1], 2);
  ::close(out[1]);
  running.out.reset(out[0]);
  return running;
}

bool LaunchTest::Running::wait_for(const std::string& text) {
  char byte;
  while (seen.find(text) == std::string::npos) {
    const ssize_t n = ::read(out.get(), &byte, 1);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    seen += byte;
  }
  return true;
}

std::string LaunchTest::Running::rest() {
  return seen + read_all(out.get());
}

int LaunchTest::Running::wait() {
  int status = 0;
  if (::waitpid(pid, &status, 0) != pid) return -1;
  return decode(status);
}

}  // namespace varve::launcher
