// What a sandbox cannot see, reach or exceed.
#include <limits.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "base/file_io.h"
#include "guard/masks.h"
#include "launch_fixture.h"

namespace varve::launcher {
namespace {

class LaunchIsolationTest : public LaunchTest {};

TEST_F(LaunchIsolationTest, EveryNamespaceIsItsOwn) {
  for (const char* name : {"user", "mnt", "pid", "net", "ipc", "uts", "cgroup"}) {
    const std::string path = std::string("/proc/self/ns/") + name;
    char host[PATH_MAX] = {};
    ASSERT_GT(::readlink(path.c_str(), host, sizeof host - 1), 0);
    const Result inside = sh("readlink " + path);
    EXPECT_EQ(inside.status, 0) << inside.err;
    EXPECT_NE(inside.out, std::string(host) + "\n") << name;
  }
  char host[PATH_MAX] = {};
  ASSERT_GT(::readlink("/proc/self/ns/net", host, sizeof host - 1), 0);
  EXPECT_EQ(sh("readlink /proc/self/ns/net", {"--net", "host"}).out, std::string(host) + "\n");
}

TEST_F(LaunchIsolationTest, TheIdMapIsARangeOfItsOwn) {
  const Result first = sh("cat /proc/self/uid_map /proc/self/gid_map");
  std::istringstream text(first.out);
  unsigned inside, outside, count;
  ASSERT_TRUE(text >> inside >> outside >> count) << first.out;
  EXPECT_EQ(inside, 0u);
  EXPECT_GE(outside, 0x7000'0000u);
  EXPECT_EQ(count, 65536u);
}

TEST_F(LaunchIsolationTest, OnlyItsOwnProcessesAndDescriptorsAreThere) {
  EXPECT_EQ(sh("for p in /proc/[0-9]*; do echo $p; done").out, "/proc/1\n/proc/2\n")
      << "init and sh";
  EXPECT_EQ(sh("ls /proc/self/fd").out, "0\n1\n2\n3\n") << "3 is the directory that ls reads";
}

TEST_F(LaunchIsolationTest, NoDirectoryOfTheHostIsLentByItsDescriptor) {
  // As the working directory it would lead to the host's root, and so would links of the image.
  const std::string tree = directory() + "/leaks";
  ASSERT_TRUE(make_directories(tree + "/links"));
  for (int fd = 0; fd < 32; ++fd) {
    const std::string number = std::to_string(fd);
    ASSERT_EQ(::symlink(("/proc/self/fd/" + number).c_str(), (tree + "/links/" + number).c_str()),
              0);
  }
  make_image("leaks", tree);
  for (int fd = 3; fd < 32; ++fd) {
    for (const char* where : {"/proc/self/fd/", "/links/"}) {
      const Result result = sh("pwd; ls -d ../../../../../../../../etc",
                               {"--workdir", where + std::to_string(fd)}, "base+leaks");
      EXPECT_EQ(result.status, 125) << where << fd << ": " << result.out;
    }
  }
  // Nor is a standard stream, which the command could enter anyway.
  std::vector<std::string> words{"sh", "-c", "exec \"$@\" <" + tree, "sh"};
  for (const std::string& word : command({"--workdir", "/proc/self/fd/0", "base", "pwd"}))
    words.push_back(word);
  const Result stream = execute(words);
  EXPECT_EQ(stream.status, 125) << stream.out;
  EXPECT_NE(stream.err.find("working directory"), std::string::npos) << stream.err;
}

TEST_F(LaunchIsolationTest, LinksOfTheImageLeadNoFileOfVarveOutOfIt) {
  // Where the host's resolver is lent, the file for it is made below /etc, which the image chose.
  for (int fd = 3; fd < 24; ++fd) {
    const std::string number = std::to_string(fd);
    const std::string tree = directory() + "/etc" + number;
    ASSERT_TRUE(make_directories(tree));
    ASSERT_EQ(::symlink(("/proc/self/fd/" + number).c_str(), (tree + "/etc").c_str()), 0);
    make_image("etc" + number, tree);
    EXPECT_EQ(sh("true", {"--net", "host"}, "base+etc" + number).status, 125) << fd;
  }
  const std::string tree = directory() + "/inside";
  ASSERT_TRUE(make_directories(tree + "/private/etc"));
  ASSERT_EQ(::symlink("../../../private/etc", (tree + "/etc").c_str()), 0);
  make_image("inside", tree);
  EXPECT_EQ(sh("ls /private/etc", {"--net", "host"}, "base+inside").out, "resolv.conf\n")
      << "an ordinary link is followed, inside the image";
}

TEST_F(LaunchIsolationTest, NoMountOfTheHostIsVisible) {
  const Result mounts = sh("cat /proc/self/mountinfo");
  std::istringstream lines(mounts.out);
  for (std::string line; std::getline(lines, line);) {
    const bool known =
        line.find(" - overlay ") != std::string::npos ||
        line.find(" - tmpfs ") != std::string::npos || line.find(" - proc ") != std::string::npos ||
        line.find(" - sysfs ") != std::string::npos || line.find(" - devpts ") != std::string::npos;
    EXPECT_TRUE(known) << line;
    EXPECT_EQ(line.find(directory()), std::string::npos) << line;
  }
}

TEST_F(LaunchIsolationTest, ChrootDoesNotLeadOut) {
  const Result result = run({"base", "--", "sandbox_probe", "escape"});
  EXPECT_NE(result.out.find("chroot out: ok"), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("sees its own root: yes"), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("sees the root below: no"), std::string::npos) << result.out;
}

TEST_F(LaunchIsolationTest, PidOneIsClosedToTheSandboxsRoot) {
  const Result result =
      sh("tr '\\0' ' ' </proc/1/cmdline; echo; cat /proc/1/comm;"
         "for f in environ maps mem stack fd/0 exe root; do cat /proc/1/$f >/dev/null 2>&1 && echo "
         "open $f; done;"
         "kill -KILL 1; kill -STOP 1; sleep 0.1; echo alive");
  EXPECT_EQ(result.out.substr(0, 10), "varve-init");
  EXPECT_EQ(result.out.find("run-dir"), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("\nvarve-init\nalive\n"), std::string::npos) << result.out;
}

TEST_F(LaunchIsolationTest, NothingThatRootMayDoToPidOneChangesTheOutcome) {
  // AddressSanitizer's vfork clears the stack's shadow by mmap, which PID 1 may no longer do once
  // the command has taken its address space away. Above this size only.
  ASSERT_EQ(::setenv("ASAN_OPTIONS", "clear_shadow_mmap_threshold=1073741824", 1), 0);
  const Result result = run({"base", "--", "sandbox_probe", "pid1"});
  ::unsetenv("ASAN_OPTIONS");
  EXPECT_EQ(result.status, 7) << result.err;
}

TEST_F(LaunchIsolationTest, DescriptorsOfTheCallerDoNotComeAlong) {
  std::vector<std::string> words{"sh", "-c", "exec 3</etc 7</ 9</dev/null; exec \"$@\"", "sh"};
  for (const std::string& word : command({"base", "ls", "/proc/self/fd"})) words.push_back(word);
  EXPECT_EQ(execute(words).out, "0\n1\n2\n3\n") << "3 is the directory that ls reads";
}

TEST_F(LaunchIsolationTest, NoCoreIsDumped) {
  const Result result = sh("ulimit -Hc; ulimit -c unlimited; sandbox_probe crash; ls -d core*");
  EXPECT_EQ(result.out, "0\n") << result.err;
}

TEST_F(LaunchIsolationTest, TheLimitWithWhichNoHandlerOfCoresIsRunStays) {
  const std::string limits = "grep 'Max core' /proc/self/limits; ";
  const Result result = sh(limits + "ulimit -c 0 && " + limits + "ulimit -c unlimited; " + limits);
  const std::string line =
      "Max core file size        1                    1                    bytes     \n";
  EXPECT_EQ(result.out, line + line + line) << result.err;
  std::vector<std::string> words{"sh", "-c", "ulimit -c 0; exec \"$@\"", "sh"};
  for (const std::string& word : command({"base", "--", "sh", "-c", "exit 3"}))
    words.push_back(word);
  EXPECT_EQ(execute(words).status, 3) << "a caller with a hard limit of 0";
}

TEST_F(LaunchIsolationTest, MaskedEntriesAreEmpty) {
  std::string script;
  for (const guard::ProcMask& mask : guard::proc_masks()) {
    const std::string path = std::string("/proc/") + mask.path;
    script += mask.is_directory
                  ? "[ -z \"$(ls -A " + path + " 2>/dev/null)\" ] || echo " + path + "\n"
                  : "[ ! -s " + path + " ] && [ -z \"$(head -c 1 " + path +
                        " 2>/dev/null)\" ] || echo " + path + "\n";
  }
  EXPECT_EQ(sh(script).out, "");
}

TEST_F(LaunchIsolationTest, WhatIsNotMaskedBecauseOfTheUserNamespaceIsUnreadable) {
  for (const char* name : {"kcore", "kmsg", "kpagecgroup", "kpagecount", "kpageflags",
                           "pagetypeinfo", "slabinfo", "sysrq-trigger", "timer_list", "vmallocinfo",
                           "vmcore", "latency_stats", "sched_debug", "dynamic_debug/control"}) {
    const Result result =
        sh(std::string("head -c 1 /proc/") + name + "; echo x 2>/dev/null >/proc/" + name);
    EXPECT_EQ(result.out, "") << name;
    EXPECT_NE(result.status, 0) << name << " can be written";
  }
}

TEST_F(LaunchIsolationTest, EverythingInProcAndSysCanBeReadWithoutHarm) {
  // grep -r over /proc has brought kernels down; here it ends, and the sandbox still works.
  const Result result =
      sh("find /proc/sys /proc/[a-z]* /sys -maxdepth 6 -type f 2>/dev/null | grep -v -e /proc/kmsg "
         "-e /proc/self -e thread-self |"
         " while read f; do timeout 2 head -c 65536 \"$f\" >/dev/null 2>&1; done; echo fine");
  EXPECT_EQ(result.out, "fine\n");
}

TEST_F(LaunchIsolationTest, SysIsAnAllowList) {
  EXPECT_EQ(sh("ls /sys /sys/devices /sys/devices/system /sys/kernel /sys/kernel/mm | grep -v -e : "
               "-e '^$'")
                .out,
            "devices\nkernel\nsystem\ncpu\nnode\nmm\ntransparent_hugepage\n");
  EXPECT_EQ(sh("nproc").out, std::to_string(::sysconf(_SC_NPROCESSORS_ONLN)) + "\n");
}

TEST_F(LaunchIsolationTest, NothingOfTheHostCanBeWritten) {
  for (const char* path :
       {"/proc/sys/kernel/hostname", "/proc/sys/vm/drop_caches", "/proc/sysrq-trigger",
        "/proc/sys/net/ipv4/ip_forward", "/sys/kernel/mm/transparent_hugepage/enabled",
        "/sys/devices/system/cpu/cpu1/online", "/sys/x"}) {
    EXPECT_NE(sh(std::string("echo 1 >") + path).status, 0) << path;
  }
}

TEST_F(LaunchIsolationTest, DevIsMinimalAndWorks) {
  EXPECT_EQ(sh("ls /dev").out,
            "fd\nfull\nnull\nptmx\npts\nrandom\nshm\nstderr\nstdin\nstdout\ntty\nurandom\nzero\n");
  const Result result =
      sh("set -e; echo x >/dev/null; [ $(head -c 9 /dev/zero | wc -c) = 9 ]; [ $(head -c 9 "
         "/dev/urandom | wc -c) = 9 ];"
         "! echo x 2>/dev/null >/dev/full; echo shared >/dev/shm/f; cat /dev/shm/f; echo out "
         ">/dev/stdout");
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.out, "shared\nout\n");
}

TEST_F(LaunchIsolationTest, DangerousCallsAreRefused) {
  const Result result = run({"base", "--", "sandbox_probe", "calls"});
  const char* const kExpected[] = {"mount: EPERM",         "fsopen: EPERM",
                                   "unshare: EPERM",       "clone newuser: ENOSYS",
                                   "clone3: ENOSYS",       "io_uring_setup: EPERM",
                                   "bpf: EPERM",           "keyctl: EPERM",
                                   "ptrace: EPERM",        "perf_event_open: EPERM",
                                   "AF_ALG: ENOSYS",       "AF_VSOCK: ENOSYS",
                                   "AF_PACKET: ENOSYS",    "AF_INET: ok",
                                   "AF_UNIX: ok",          "TIOCSTI: EPERM",
                                   "PR_SCHED_CORE: EPERM", "mknod device: EPERM",
                                   "mknod fifo: ok",       "settimeofday: EPERM",
                                   "setns: EPERM",         "SCHED_FIFO: EPERM",
                                   "nice -5: EACCES"};
  for (const char* line : kExpected) {
    EXPECT_NE(result.out.find(std::string(line) + "\n"), std::string::npos) << line << " in\n"
                                                                            << result.out;
  }
}

TEST_F(LaunchIsolationTest, PrivilegesAreWhatThePlanSays) {
  const Result result = sh("grep -e ^Cap -e NoNewPrivs -e Seccomp: /proc/self/status");
  EXPECT_NE(result.out.find("CapBnd:\t00000000a00405fb"), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("CapEff:\t00000000a00405fb"), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("NoNewPrivs:\t1"), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("Seccomp:\t2"), std::string::npos) << result.out;
  const Result sudo = sh("grep -e CapEff -e NoNewPrivs -e Seccomp: /proc/self/status",
                         {"--allow-sudo", "--user", "me"});
  EXPECT_NE(sudo.out.find("NoNewPrivs:\t0"), std::string::npos) << sudo.out;
  EXPECT_NE(sudo.out.find("Seccomp:\t2"), std::string::npos) << sudo.out;
  EXPECT_NE(sudo.out.find("CapEff:\t0000000000000000"), std::string::npos) << sudo.out;
}

TEST_F(LaunchIsolationTest, SetUserIdWorksOnlyWhenAllowed) {
  const std::string script =
      "cp /bin/sandbox_probe /tmp/p; chmod 4755 /tmp/p; exec su me -c '/tmp/p euid'";
  EXPECT_EQ(sh(script, {"--allow-sudo"}).out, "0\n");
  EXPECT_EQ(sh(script).out, "1000\n");
}

TEST_F(LaunchIsolationTest, LoopbackWorksAndNothingElseIsThere) {
  const Result result =
      sh("sed -n 's/^ *\\([a-z0-9]*\\):.*/\\1/p' /proc/net/dev; echo hi | nc -l -p 80 127.0.0.1 & "
         "sleep 0.2; nc 127.0.0.1 80 </dev/null");
  EXPECT_EQ(result.out, "lo\nhi\n") << result.err;
}

TEST_F(LaunchIsolationTest, TheHostsResolverIsLentReadOnly) {
  std::ifstream file("/etc/resolv.conf");
  std::stringstream host;
  host << file.rdbuf();
  const Result result =
      sh("cat /etc/resolv.conf; echo x 2>/dev/null >>/etc/resolv.conf && echo written",
         {"--net", "host"});
  EXPECT_EQ(result.out, host.str());
}

TEST_F(LaunchIsolationTest, AHostWithoutAResolverHasNoneToLend) {
  const std::string etc = directory() + "/no-resolver";
  ASSERT_TRUE(make_directories(etc));
  std::vector<std::string> words{
      "unshare", "--mount", "sh", "-c", "mount --bind \"$0\" /etc && exec \"$@\"", etc};
  for (const std::string& word :
       command({"--net", "host", "base", "--", "sh", "-c", "ls /etc/resolv.conf || exit 3"})) {
    words.push_back(word);
  }
  EXPECT_EQ(execute(words).status, 3);
}

TEST_F(LaunchIsolationTest, ProcessesAreLimited) {
  const Result result = sh("sandbox_probe forks", {"--pids", "20"});
  // PID 1, the probe (which the shell becomes), and as many as are left.
  EXPECT_EQ(result.out, "forks: 18\n");
}

TEST_F(LaunchIsolationTest, MemoryIsLimited) {
  const Result result = run({"--memory", "48M", "base", "--", "sandbox_probe", "eat", "200"});
  EXPECT_EQ(result.status, 137);
  EXPECT_EQ(run({"--memory", "48M", "base", "--", "sandbox_probe", "eat", "20"}).status, 0);
}

TEST_F(LaunchIsolationTest, ALimitBelowWhatASandboxNeedsIsNoFailureOfVarve) {
  const Result result = run({"--memory", "1M", "base", "--", "sandbox_probe", "eat", "50"});
  EXPECT_EQ(result.status, 137) << result.err;
}

TEST_F(LaunchIsolationTest, CpuTimeIsLimited) {
  const std::string path = directory() + "/cpu.json";
  const Result result =
      sh("timeout 1 sh -c 'while :; do :; done'; true", {"--cpus", "0.2", "--stats", path});
  ASSERT_EQ(result.status, 0) << result.err;
  std::ifstream file(path);
  std::stringstream buffer;
  buffer << file.rdbuf();
  const std::string text = buffer.str();
  const auto number = [&text](const char* member) {
    return std::strtod(text.c_str() + text.find(member) + std::string(member).size(), nullptr);
  };
  // A share of its own wall time, so that a busy machine changes nothing; a period may be overrun.
  EXPECT_LT(number("\"cpu_usec\":") / (1000 * number("\"exit_ms\":")), 0.4) << text;
}

TEST_F(LaunchIsolationTest, SharedMemoryIsForEverybodyAndRunsNothing) {
  EXPECT_EQ(sh("grep ' /dev/shm ' /proc/self/mountinfo | cut -d' ' -f6 | cut -d, -f1-4; "
               "stat -c '%a %u:%g' /dev/shm")
                .out,
            "rw,nosuid,nodev,noexec\n1777 0:0\n");
  EXPECT_EQ(
      sh("echo x >/dev/shm/f && stat -c %u:%g /dev/shm/f; touch /dev/f 2>/dev/null || echo no",
         {"--user", "1000:1000"})
          .out,
      "1000:1000\nno\n");
}

TEST_F(LaunchIsolationTest, SharedMemoryIsHalfTheLimit) {
  EXPECT_EQ(sh("df -m /dev/shm | tail -1 | awk '{print $2}'", {"--memory", "256M"}).out, "128\n");
}

TEST_F(LaunchIsolationTest, AForkBombEndsWithItsSandbox) {
  Running running = start({"--pids", "100", "base", "--", "sandbox_probe", "bomb"});
  ASSERT_TRUE(running.wait_for("bomb"));
  ASSERT_EQ(::kill(running.pid, SIGTERM), 0);
  EXPECT_EQ(running.wait(), 128 + SIGTERM);
  running.rest();  // Ends only when every process has.
}

}  // namespace
}  // namespace varve::launcher
