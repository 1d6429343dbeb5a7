// What a user of `varve run` sees: statuses, environment, users, terminals, statistics.
#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <fstream>
#include <sstream>

#include "base/file_io.h"
#include "base/remove_tree.h"
#include "launch_fixture.h"

namespace varve::launcher {
namespace {

class LaunchRunTest : public LaunchTest {};

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST_F(LaunchRunTest, TheStatusOfTheCommandIsTheStatusOfTheRun) {
  for (const int status : {0, 1, 7, 125, 255})
    EXPECT_EQ(sh("exit " + std::to_string(status)).status, status);
  EXPECT_EQ(sh("kill -KILL $$").status, 128 + SIGKILL);
  EXPECT_EQ(sh("kill -TERM $$").status, 128 + SIGTERM);
  EXPECT_EQ(sh("kill -SEGV $$").status, 128 + SIGSEGV);
}

TEST_F(LaunchRunTest, ACommandThatIsNotThereOrNotExecutableSaysSo) {
  const Result missing = run({"base", "--", "no-such-program"});
  EXPECT_EQ(missing.status, 127);
  EXPECT_EQ(missing.err, "varve: executing 'no-such-program': No such file or directory\n");
  const Result not_executable = run({"base", "--", "/etc/passwd"});
  EXPECT_EQ(not_executable.status, 126);
  EXPECT_EQ(not_executable.err, "varve: executing '/etc/passwd': Permission denied\n");
  EXPECT_EQ(run({"base", "--", "/bin"}).status, 126);
}

TEST_F(LaunchRunTest, AFailureOfVarveIsNeverTheCommands) {
  const Result no_image = run({"nothing", "--", "true"});
  EXPECT_EQ(no_image.status, 125);
  EXPECT_EQ(no_image.err, "varve: image 'nothing' does not exist\n");
  EXPECT_EQ(run({"--memory", "lots", "base", "true"}).status, 125);
  EXPECT_EQ(run({"--user", "stranger", "base", "true"}).status, 125);
  EXPECT_EQ(run({"base"}).status, 125) << "neither a command nor a default one";
  const Result workdir = run({"--workdir", "/etc/passwd/x", "base", "true"});
  EXPECT_EQ(workdir.status, 125);
  EXPECT_EQ(workdir.err,
            "varve: entering the working directory '/etc/passwd/x': Not a directory\n");
}

TEST_F(LaunchRunTest, TheImagesConfigurationCounts) {
  ASSERT_TRUE(write_file_atomic(
      directory() + "/images/base+base.config",
      as_bytes(
          R"({"env":["A=image","B=image"],"cwd":"/made/by/varve","user":"me","cmd":["/bin/sh","-c","echo $A $B $HOME; pwd; id -u"]})")));
  const Result result = run({"--env", "B=option", "base+base"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.out, "image option /home/me\n/made/by/varve\n1000\n");
}

TEST_F(LaunchRunTest, UsersAreThoseOfTheImage) {
  EXPECT_EQ(sh("id -u; id -g; id -G; echo $HOME", {"--user", "me"}).out,
            "1000\n1000\n1000 2000\n/home/me\n");
  EXPECT_EQ(sh("id -u; id -g", {"--user", "me:extra"}).out, "1000\n2000\n");
  EXPECT_EQ(sh("id -u; id -g", {"--user", "4294967294:70000"}).out, "4294967294\n70000\n");
  const Result other = sh("cat /etc/shadow || touch /etc/x", {"--user", "me"});
  EXPECT_NE(other.status, 0) << "a user is no root";
}

TEST_F(LaunchRunTest, HostNameAndEnvironmentAreTheSandboxsOwn) {
  ASSERT_EQ(::setenv("VARVE_TEST_LEAK", "secret", 1), 0);
  const Result result = sh("env; test \"$(hostname)\" = \"$HOSTNAME\"");
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(result.out.find("secret"), std::string::npos);
}

TEST_F(LaunchRunTest, StandardInputIsPassedOn) {
  int pipe[2];
  ASSERT_EQ(::pipe(pipe), 0);
  const std::string script = "printf 'a\\nb\\n' | exec \"$@\"";
  std::vector<std::string> words{"/bin/sh", "-c", script, "sh"};
  for (const std::string& word : command({"base", "--", "cat"})) words.push_back(word);
  const Result result = execute(words);
  EXPECT_EQ(result.out, "a\nb\n") << result.err;
  ::close(pipe[0]);
  ::close(pipe[1]);
}

TEST_F(LaunchRunTest, ClosedStandardStreamsStayHarmless) {
  std::vector<std::string> words{"/bin/sh", "-c", "exec \"$@\" <&- 2>&-", "sh"};
  for (const std::string& word : command({"base", "--", "sh", "-c", "cat; echo fine"}))
    words.push_back(word);
  const Result result = execute(words);
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(result.out, "fine\n");
}

TEST_F(LaunchRunTest, SignalsReachTheCommand) {
  for (const auto& [signal, name] : {std::pair{SIGTERM, "TERM"}, std::pair{SIGINT, "INT"},
                                     std::pair{SIGHUP, "HUP"}, std::pair{SIGUSR1, "USR1"}}) {
    Running running = start({"base", "--", "sh", "-c",
                             std::string("trap 'echo caught; exit 42' ") + name +
                                 "; echo ready; while :; do sleep 0.05; done"});
    ASSERT_TRUE(running.wait_for("ready"));
    ASSERT_EQ(::kill(running.pid, signal), 0);
    EXPECT_EQ(running.wait(), 42) << name;
    EXPECT_NE(running.rest().find("caught"), std::string::npos) << name;
  }
}

TEST_F(LaunchRunTest, ASignalWithoutAHandlerEndsTheCommand) {
  Running running = start({"base", "--", "sh", "-c", "echo ready; sleep 1000"});
  ASSERT_TRUE(running.wait_for("ready"));
  ASSERT_EQ(::kill(running.pid, SIGTERM), 0);
  EXPECT_EQ(running.wait(), 128 + SIGTERM);
}

TEST_F(LaunchRunTest, ACallerThatIgnoresTheEndsOfChildrenHearsOfThisOne) {
  std::vector<std::string> words{"env", "--ignore-signal=CHLD"};
  for (const std::string& word : command({"base", "--", "sh", "-c", "exit 7"}))
    words.push_back(word);
  const Result result = execute(words);
  EXPECT_EQ(result.status, 7) << result.err;
}

TEST_F(LaunchRunTest, TheOnlyProcessOfItsMountNamespaceRunsAsWell) {
  // When it leaves that for its sandbox's, the kernel takes the mounts there apart.
  std::vector<std::string> words{"unshare", "--mount"};
  for (const std::string& word : command({"--memory", "64M", "base", "--", "true"}))
    words.push_back(word);
  const Result result = execute(words);
  EXPECT_EQ(result.status, 0) << result.err;
}

TEST_F(LaunchRunTest, OrphansAreReaped) {
  const Result result =
      sh("sandbox_probe orphans; i=0; "
         "while grep -q '^State:.Z' /proc/[0-9]*/status 2>/dev/null; do i=$((i+1)); [ $i -lt 200 ] "
         "|| exit 1; sleep 0.05; done");
  EXPECT_EQ(result.status, 0) << "zombies stay";
}

TEST_F(LaunchRunTest, WhatTheCommandLeavesRunningEndsWithIt) {
  Running running = start({"base", "--", "sh", "-c", "setsid sleep 1000 & echo started"});
  EXPECT_EQ(running.wait(), 0);
  // The pipe is closed only when the last process that held it is gone.
  EXPECT_EQ(running.rest(), "started\n");
}

TEST_F(LaunchRunTest, StatisticsAreWritten) {
  const std::string path = directory() + "/stats.json";
  // The counters of a layer that is attached already are not this run's.
  EXPECT_EQ(sh("true", {}).status, 0);
  const Result result =
      sh("i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; exit 3", {"--stats", path});
  EXPECT_EQ(result.status, 3) << result.err;
  const std::string text = text_of(path);
  for (const char* member :
       {"\"image_bytes\":", "\"touched_bytes\":4096", "\"fetched_bytes\":2048",
        "\"ready_ms\":", "\"exit_ms\":", "\"exit_status\":3",
        "\"memory_peak_bytes\":", "\"cpu_usec\":", "\"path\":\"/bin/busybox\""}) {
    EXPECT_NE(text.find(member), std::string::npos) << member << " in " << text;
  }
}

TEST_F(LaunchRunTest, StatisticsThatCannotBeWrittenNameTheFile) {
  const Result result = sh("true", {"--stats", "/dev/full"});
  EXPECT_EQ(result.status, 125);
  EXPECT_NE(result.err.find("/dev/full"), std::string::npos) << result.err;
}

TEST_F(LaunchRunTest, ThePlanIsPrintedAndNothingIsRun) {
  const Result result = run({"--print-plan", "base", "--", "sh", "-c", "echo run"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_NE(result.out.find("\"op\":\"mount_overlay\""), std::string::npos);
  EXPECT_NE(result.out.find("\"argv\":[\"sh\",\"-c\",\"echo run\"]"), std::string::npos);
}

TEST_F(LaunchRunTest, APlanThatCannotBePrintedIsAnError) {
  std::string line;
  for (const std::string& word : command({"--print-plan", "base", "--", "true"})) {
    line += "'" + word + "' ";
  }
  const Result result = execute({"sh", "-c", line + ">/dev/full"});
  EXPECT_EQ(result.status, 125);
  EXPECT_NE(result.err.find("printing the plan: No space left"), std::string::npos) << result.err;
}

/// A terminal of the test's own with `varve run -it` on it.
struct Terminal {
  explicit Terminal(const std::vector<std::string>& words) {
    winsize size{};
    size.ws_row = 33;
    size.ws_col = 101;
    if (::openpty(&master, &slave, nullptr, nullptr, &size) != 0) return;
    pid = ::fork();
    if (pid != 0) return;
    ::setsid();
    ::ioctl(slave, TIOCSCTTY, 0);
    for (int fd = 0; fd <= 2; ++fd) ::dup2(slave, fd);
    std::vector<char*> argv;
    for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(nullptr);
    ::execv(argv[0], argv.data());
    ::_exit(99);
  }
  ~Terminal() {
    ::close(master);
    ::close(slave);
  }
  bool wait_for(const std::string& text) {
    char byte;
    while (seen.find(text) == std::string::npos) {
      // This process holds the slave too, so that no end of file would come.
      pollfd readable{master, POLLIN, 0};
      if (::poll(&readable, 1, 30'000) != 1 || ::read(master, &byte, 1) != 1) return false;
      seen += byte;
    }
    return true;
  }
  bool is_raw() const {
    termios mode;
    return ::tcgetattr(slave, &mode) == 0 && (mode.c_lflag & ICANON) == 0;
  }
  int wait() const {
    int status = 0;
    ::waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  }
  int master = -1, slave = -1;
  pid_t pid = -1;
  std::string seen;
};

TEST_F(LaunchRunTest, ATerminalWorksLikeOne) {
  Terminal terminal(command({"-it", "base", "--", "sh", "-c",
                             "tty; stty size; echo go; read line; echo got-$line; exit 5"}));
  ASSERT_TRUE(terminal.wait_for("/dev/pts/0")) << terminal.seen;
  ASSERT_TRUE(terminal.wait_for("33 101")) << terminal.seen;
  ASSERT_TRUE(terminal.wait_for("go\r\n")) << terminal.seen;
  EXPECT_TRUE(terminal.is_raw());
  ASSERT_EQ(::write(terminal.master, "hello\r", 6), 6);
  ASSERT_TRUE(terminal.wait_for("got-hello")) << terminal.seen;
  EXPECT_EQ(terminal.wait(), 5);
  EXPECT_FALSE(terminal.is_raw()) << "the caller's terminal was not restored";
}

TEST_F(LaunchRunTest, AResizeReachesTheSandbox) {
  Terminal terminal(command(
      {"-it", "base", "--", "sh", "-c",
       "echo go; while [ \"$(stty size)\" != '44 111' ]; do sleep 0.05; done; echo resized"}));
  ASSERT_TRUE(terminal.wait_for("go\r\n")) << terminal.seen;
  winsize size{};
  size.ws_row = 44;
  size.ws_col = 111;
  ASSERT_EQ(::ioctl(terminal.master, TIOCSWINSZ, &size), 0);
  EXPECT_TRUE(terminal.wait_for("resized")) << terminal.seen;
  EXPECT_EQ(terminal.wait(), 0);
}

TEST_F(LaunchRunTest, ControlCOnATerminalInterruptsTheCommand) {
  Terminal terminal(
      command({"-it", "base", "--", "sh", "-c",
               "trap 'echo interrupted; exit 9' INT; echo go; while :; do sleep 0.05; done"}));
  ASSERT_TRUE(terminal.wait_for("go\r\n")) << terminal.seen;
  ASSERT_EQ(::write(terminal.master, "\x03", 1), 1);
  EXPECT_TRUE(terminal.wait_for("interrupted")) << terminal.seen;
  EXPECT_EQ(terminal.wait(), 9);
  EXPECT_FALSE(terminal.is_raw());
}

/// Waits until the pipe that `fd` reads from takes no more.
void wait_until_full(int fd) {
  const UniqueFd writer(
      ::open(("/proc/self/fd/" + std::to_string(fd)).c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC));
  ASSERT_TRUE(writer);
  for (pollfd writable{writer.get(), POLLOUT, 0}; ::poll(&writable, 1, 0) == 1;) ::usleep(1000);
}

TEST_F(LaunchRunTest, ATerminalsOutputArrivesWholeHoweverLateItIsRead) {
  Running running = start({"-t", "base", "--", "sh", "-c",
                           "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); echo line-$i; done"});
  wait_until_full(running.out.get());
  const std::string text = running.rest();
  EXPECT_EQ(running.wait(), 0);
  EXPECT_TRUE(text.ends_with("line-20000\r\n")) << text.substr(text.size() - 40);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 20000);
}

TEST_F(LaunchRunTest, ATerminalsOutputThatNobodyReadsDoesNotKeepARunFromEnding) {
  Running running = start({"-t", "base", "--", "yes"});
  wait_until_full(running.out.get());
  ::usleep(100'000);  // Until it has more to write.
  ASSERT_EQ(::kill(running.pid, SIGTERM), 0);
  EXPECT_EQ(running.wait(), 128 + SIGTERM);
}

TEST_F(LaunchRunTest, ATerminalsReaderThatGoesDoesNotEndTheCommand) {
  Running running = start(
      {"-t", "base", "--", "sh", "-c",
       "trap 'echo more; echo and more; grep -q SigBlk:.0000000000000000 /proc/self/status && "
       "exit 7' USR1; echo ready; while :; do sleep 0.05; done"});
  ASSERT_TRUE(running.wait_for("ready"));
  running.out.reset();
  ASSERT_EQ(::kill(running.pid, SIGUSR1), 0);
  EXPECT_EQ(running.wait(), 7);
}

TEST_F(LaunchRunTest, AResizeDuringTheSetUpReachesTheSandbox) {
  const std::string image = directory() + "/images/slow";
  ASSERT_EQ(::symlink("base.erofs", (image + ".erofs").c_str()), 0);
  // The image is not told before its configuration is: when somebody opens this for writing.
  ASSERT_EQ(::mkfifo((image + ".config").c_str(), 0600), 0);
  Terminal terminal(
      command({"-it", "slow", "--", "sh", "-c",
               "while [ \"$(stty size)\" != '44 111' ]; do sleep 0.05; done; echo resized"}));
  while (execute({"pgrep", "-P", std::to_string(terminal.pid)}).status != 0) ::usleep(1000);
  winsize size{};
  size.ws_row = 44;
  size.ws_col = 111;
  ASSERT_EQ(::ioctl(terminal.master, TIOCSWINSZ, &size), 0);
  ASSERT_TRUE(UniqueFd(::open((image + ".config").c_str(), O_WRONLY | O_CLOEXEC)));
  EXPECT_TRUE(terminal.wait_for("resized")) << terminal.seen;
  EXPECT_EQ(terminal.wait(), 0);
}

TEST_F(LaunchRunTest, AFailedTerminalRunRestoresTheTerminal) {
  Terminal terminal(command({"-it", "base", "--", "no-such-program"}));
  EXPECT_TRUE(terminal.wait_for("No such file")) << terminal.seen;
  EXPECT_EQ(terminal.wait(), 127);
  EXPECT_FALSE(terminal.is_raw());
}

TEST_F(LaunchRunTest, BothEndsOfTheRangesThatTheOptionsHaveAreTaken) {
  for (const std::vector<std::string>& limits :
       {std::vector<std::string>{"--memory", "16383T", "--rw-size", "16383T", "--cpus", "1000000",
                                 "--pids", "4194304", "--user", "4294967294:4294967294"},
        std::vector<std::string>{"--rw-size", "64k", "--cpus", "0.01", "--pids", "2"}}) {
    const Result result = sh("exit 3", limits);
    EXPECT_EQ(result.status, 3) << result.err;
  }
}

TEST_F(LaunchRunTest, AFileOrDirectoryThatCannotBeUsedIsNamedWithItsOption) {
  for (const auto& [option, value] :
       std::vector<std::pair<std::string, std::string>>{{"--state-dir", "/proc/nope"},
                                                        {"--run-dir", "/proc/nope"},
                                                        {"--run-dir", varve_program()},
                                                        {"--run-dir", "/sys/kernel"},
                                                        {"--state-dir", "/sys/kernel"},
                                                        {"--stats", "/proc/nope/stats"}}) {
    const Result result = run({option, value, "base", "--", "true"});
    EXPECT_EQ(result.status, 125);
    EXPECT_TRUE(result.err.starts_with("varve: " + option + ": ")) << result.err;
    EXPECT_NE(result.err.find("'" + value), std::string::npos) << result.err;
  }
}

TEST_F(LaunchRunTest, AStateDirectoryWithAPathThatNoLinkCanHoldIsNamedWithItsOption) {
  const Result result = run({"--state-dir", "/" + std::string(4095, 'x'), "base", "--", "true"});
  EXPECT_EQ(result.status, 125);
  EXPECT_TRUE(result.err.starts_with("varve: --state-dir: ")) << result.err;
}

TEST_F(LaunchRunTest, AnOrdinaryUserIsToldWhatIsMissing) {
  // Its directory may be closed to others: the program is opened before.
  std::vector<std::string> words{"sh", "-c",
                                 "exec 9<\"$1\"; shift; exec setpriv --reuid 1000 --regid 1000 "
                                 "--clear-groups /proc/self/fd/9 \"$@\"",
                                 "sh"};
  for (const std::string& word : command({"base", "--", "true"})) words.push_back(word);
  const Result result = execute(words);
  EXPECT_EQ(result.status, 125);
  EXPECT_TRUE(result.err.starts_with("varve: not root: ")) << result.err;
}

TEST_F(LaunchRunTest, AnImageIsMountedAndUnmounted) {
  const std::string at = directory() + "/at";
  ASSERT_TRUE(make_directories(at));
  const std::vector<std::string> tail{"--run-dir", run_dir()};
  EXPECT_EQ(execute({varve_program(), "mount", "--run-dir", run_dir(), "base+base", at}).status, 0);
  EXPECT_NE(text_of(at + "/etc/passwd").find("root:"), std::string::npos);
  EXPECT_FALSE(write_file_atomic(at + "/x", as_bytes("x")));
  const Result again = execute({varve_program(), "mount", "--run-dir", run_dir(), "base", at});
  EXPECT_NE(again.status, 0);
  EXPECT_NE(again.err.find("already"), std::string::npos) << again.err;
  const Result unmounted = execute({varve_program(), "umount", "--run-dir", run_dir(), at});
  EXPECT_EQ(unmounted.status, 0) << unmounted.err;
  EXPECT_EQ(text_of(at + "/etc/passwd"), "");
  const Result foreign = execute({varve_program(), "umount", "--run-dir", run_dir(), at});
  EXPECT_EQ(foreign.status, 3) << foreign.err;
}

TEST_F(LaunchRunTest, AnImageIsMountedAtAPathOfAnyLengthAndSpelling) {
  const std::string top = directory() + "/at-any";
  std::string longest = top;
  while (longest.size() + 201 < PATH_MAX - 1) longest += "/" + std::string(200, 'd');
  longest += "/" + std::string(PATH_MAX - 1 - longest.size() - 1, 'e');
  ASSERT_EQ(longest.size(), PATH_MAX - 1u);
  for (const std::string& at : {top + "/" + std::string(255, 'n'), top + "/a\nb-\\", longest}) {
    ASSERT_TRUE(make_directories(at));
    const Result mounted = execute({varve_program(), "mount", "--run-dir", run_dir(), "base", at});
    EXPECT_EQ(mounted.status, 0) << mounted.err;
    {
      const UniqueFd fd = open_file(at, O_RDONLY | O_DIRECTORY).value();
      EXPECT_EQ(::faccessat(fd.get(), "etc/passwd", F_OK, 0), 0) << at;
    }
    const Result again = execute({varve_program(), "mount", "--run-dir", run_dir(), "base", at});
    EXPECT_NE(again.err.find("already"), std::string::npos) << again.err;
    const Result unmounted = execute({varve_program(), "umount", "--run-dir", run_dir(), at});
    EXPECT_EQ(unmounted.status, 0) << unmounted.err;
  }
  const Result longer =
      execute({"sh", "-c", "cd \"$1\" && mkdir x && exec \"$0\" mount --run-dir \"$2\" base x",
               varve_program(), longest, run_dir()});
  EXPECT_EQ(longer.status, 2) << longer.err;
  EXPECT_NE(longer.err.find("resolving 'x': File"), std::string::npos) << longer.err;
  EXPECT_TRUE(remove_tree(top));
}

TEST_F(LaunchRunTest, LongArgumentsAndVariablesArriveWhole) {
  // More than one message, and more than a socket takes at once.
  const std::string word(120'000, 'x');
  const Result result =
      run({"--env", "LONG=" + word, "base", "--", "sh", "-c",
           "echo ${#0} ${#1} ${#2} ${#LONG} \"$3\" $#", word, word + "y", word, "", "last"});
  EXPECT_EQ(result.out, "120000 120001 120000 120000  4\n") << result.err;
}

TEST_F(LaunchRunTest, AMountThatOthersUnmountedIsForgotten) {
  const std::string at = directory() + "/at-others";
  ASSERT_TRUE(make_directories(at));
  const std::vector<std::string> mount{varve_program(), "mount", "--run-dir",
                                       run_dir(),       "base",  at};
  ASSERT_EQ(execute(mount).status, 0);
  ASSERT_EQ(::umount2(at.c_str(), 0), 0);
  const Result again = execute(mount);
  EXPECT_EQ(again.status, 0) << again.err;
  EXPECT_NE(text_of(at + "/etc/passwd").find("root:"), std::string::npos);
  // What somebody else mounted there since is not ours to unmount.
  ASSERT_EQ(::umount2(at.c_str(), 0), 0);
  ASSERT_EQ(::mount("other", at.c_str(), "tmpfs", 0, nullptr), 0);
  ASSERT_TRUE(write_file_atomic(at + "/foreign", as_bytes("x")));
  const Result unmounted = execute({varve_program(), "umount", "--run-dir", run_dir(), at});
  EXPECT_EQ(unmounted.status, 0) << unmounted.err;
  EXPECT_EQ(text_of(at + "/foreign"), "x");
  EXPECT_EQ(::umount2(at.c_str(), 0), 0);
  EXPECT_EQ(execute({varve_program(), "umount", "--run-dir", run_dir(), at}).status, 3);
}

}  // namespace
}  // namespace varve::launcher
