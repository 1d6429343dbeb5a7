// Ends of every kind leave nothing: storms, kills, hostile leftovers.
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include <atomic>
#include <thread>

#include "base/file_io.h"
#include "base/remove_tree.h"
#include "launch_fixture.h"

namespace varve::launcher {
namespace {

class LaunchEndTest : public LaunchTest {};

TEST_F(LaunchEndTest, AHundredRunsInARowLeaveNothing) {
  for (int i = 0; i < 100; ++i) {
    const Result result = run({"base", "--", "true"});
    ASSERT_EQ(result.status, 0) << result.err;
  }
}

TEST_F(LaunchEndTest, ConcurrentStormsLeaveNothing) {
  std::vector<std::thread> threads;
  std::atomic<int> failures{0};
  for (int storm = 0; storm < 2; ++storm) {
    for (int lane = 0; lane < 5; ++lane) {
      threads.emplace_back([&failures] {
        for (int i = 0; i < 10; ++i) {
          const Result result = sh("echo x >/tmp/f; exit 3", {"--memory", "64M", "--cpus", "1"});
          if (result.status != 3) {
            ++failures;
            std::printf("%d %s\n", result.status, result.err.c_str());
          }
        }
      });
    }
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures, 0);
}

TEST_F(LaunchEndTest, AKilledRunTakesItsSandboxAlongAndTheNextCleansUp) {
  Running running = start(
      {"base", "--", "sh", "-c", "mkdir -p /a/b; setsid sleep 1000 & echo ready; sleep 1000"});
  ASSERT_TRUE(running.wait_for("ready"));
  ASSERT_EQ(::kill(running.pid, SIGKILL), 0);
  EXPECT_EQ(running.wait(), 1000 + SIGKILL);
  running.rest();  // Ends when every process of the sandbox is gone.
  EXPECT_EQ(run({"base", "--", "true"}).status, 0);
}

/// The one group of a sandbox that a run of this suite has in a hierarchy, "" if it has none.
std::string find_group(const std::string& run_dir) {
  struct stat pool {};
  (void)::stat((run_dir + "/sandboxes").c_str(), &pool);
  const std::string name = std::to_string(pool.st_dev) + "-" + std::to_string(pool.st_ino) + "-";
  for (const char* parent : {"", "/unified", "/varve"}) {
    const std::string prefix = parent == std::string("/varve") ? name : "varve-" + name;
    std::error_code error;
    for (const auto& entry :
         std::filesystem::directory_iterator(std::string("/sys/fs/cgroup") + parent, error)) {
      if (entry.path().filename().string().starts_with(prefix)) return entry.path();
    }
  }
  return "";
}

TEST_F(LaunchEndTest, WhatIsLeftOfADeadRunStopsNoOther) {
  Running running = start({"base", "--", "sh", "-c", "echo x >/f; echo ready; sleep 1000"});
  ASSERT_TRUE(running.wait_for("ready"));
  // As long as it has a child, the group cannot be removed.
  const std::string child = find_group(run_dir()) + "/child";
  ASSERT_EQ(::mkdir(child.c_str(), 0755), 0) << child;
  ASSERT_EQ(::kill(running.pid, SIGKILL), 0);
  running.wait();
  running.rest();
  const Result first = sh("exit 3");
  EXPECT_EQ(first.status, 3);
  EXPECT_NE(first.err.find("cleaning up after a dead sandbox"), std::string::npos) << first.err;
  const Result second = sh("exit 3");
  EXPECT_EQ(second.status, 3);
  EXPECT_EQ(second.err, "");
  ASSERT_EQ(::rmdir(child.c_str()), 0);
  EXPECT_EQ(sh("exit 3").status, 3);
}

TEST_F(LaunchEndTest, WhatARunCannotRemoveIsRemovedByTheNext) {
  Running running = start({"base", "--", "sh", "-c", "echo x >/f; echo ready; sleep 1000"});
  ASSERT_TRUE(running.wait_for("ready"));
  const std::string child = find_group(run_dir()) + "/child";
  ASSERT_EQ(::mkdir(child.c_str(), 0755), 0) << child;
  ASSERT_EQ(::kill(running.pid, SIGTERM), 0);
  EXPECT_EQ(running.wait(), 125);
  ASSERT_EQ(::rmdir(child.c_str()), 0);
  EXPECT_EQ(sh("exit 3").status, 3);
}

// UBSan opens a pipe each time it looks at an object, and finds it damaged when it cannot.
#ifndef __SANITIZE_ADDRESS__
TEST_F(LaunchEndTest, ARunThatRunsOutOfDescriptorsLeavesNothing) {
  for (int count = 5; count < 30; ++count) {
    std::vector<std::string> words{"sh", "-c", "ulimit -n \"$0\"; exec \"$@\"",
                                   std::to_string(count)};
    for (const std::string& word : command({"base", "--", "true"})) words.push_back(word);
    const int status = execute(words).status;
    EXPECT_TRUE(status == 125 || status == 0) << count << ": " << status;
  }
}
#endif

TEST_F(LaunchEndTest, RunDirectoriesThatShareAStateDirectoryRemoveNothingOfEachOther) {
  // Their slots have the same numbers: names of written files tell the pools apart.
  Running running = start({"base", "--", "sh", "-c", "echo ready; sleep 1000"});
  ASSERT_TRUE(running.wait_for("ready"));
  struct stat pool {};
  ASSERT_EQ(::stat((run_dir() + "/sandboxes").c_str(), &pool), 0);
  const std::string prefix = std::to_string(pool.st_dev) + "-" + std::to_string(pool.st_ino) + "-";
  size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(state_dir())) {
    EXPECT_TRUE(entry.path().filename().string().starts_with(prefix)) << entry.path();
    ++count;
  }
  EXPECT_EQ(count, 1u);
  ASSERT_EQ(::kill(running.pid, SIGTERM), 0);
  EXPECT_EQ(running.wait(), 128 + SIGTERM);
}

TEST_F(LaunchEndTest, RunsKilledAtAnyMomentAreCleanedUp) {
  // From before the first system call to after the last: a kill meets every step of the set-up.
  for (int i = 0; i < 40; ++i) {
    Running running = start({"base", "--", "sleep", "1000"});
    ::usleep(static_cast<useconds_t>(i) * 400);
    ASSERT_EQ(::kill(running.pid, SIGKILL), 0);
    running.wait();
    running.rest();
  }
  EXPECT_EQ(run({"base", "--", "true"}).status, 0);
}

TEST_F(LaunchEndTest, TerminatedDuringTheSetUpItStillCleansUp) {
  for (int i = 0; i < 20; ++i) {
    Running running = start({"base", "--", "sleep", "1000"});
    ::usleep(static_cast<useconds_t>(i) * 600);
    ASSERT_EQ(::kill(running.pid, SIGTERM), 0);
    const int status = running.wait();
    EXPECT_TRUE(status == 128 + SIGTERM || status == 1000 + SIGTERM) << status;
    running.rest();
  }
  EXPECT_EQ(run({"base", "--", "true"}).status, 0);
}

TEST_F(LaunchEndTest, AKilledFirstProcessIsNoOutcomeOfTheCommand) {
  Running running = start({"base", "--", "sh", "-c", "echo ready; sleep 1000"});
  ASSERT_TRUE(running.wait_for("ready"));
  const Result child = execute({"pgrep", "-P", std::to_string(running.pid)});
  ASSERT_EQ(child.status, 0);
  ASSERT_EQ(::kill(std::stoi(child.out), SIGKILL), 0);
  EXPECT_EQ(running.wait(), 125);
}

TEST_F(LaunchEndTest, KeptFilesStayWhenTheFirstProcessIsKilled) {
  Running running =
      start({"--keep", "base", "--", "sh", "-c", "echo new >/etc/new; echo ready; sleep 1000"});
  ASSERT_TRUE(running.wait_for("ready"));
  const Result child = execute({"pgrep", "-P", std::to_string(running.pid)});
  ASSERT_EQ(child.status, 0);
  ASSERT_EQ(::kill(std::stoi(child.out), SIGKILL), 0);
  EXPECT_EQ(running.wait(), 125);
  const Result kept = execute({"sh", "-c", "cat " + state_dir() + "/kept-*/upper/etc/new"});
  EXPECT_EQ(kept.out, "new\n") << kept.err;
  EXPECT_EQ(execute({"sh", "-c", "rm -r " + state_dir() + "/kept-*"}).status, 0);
}

TEST_F(LaunchEndTest, WhatAnInterruptedSuiteLeftIsRemovedByTheNext) {
  for (const char* name : {"suite-dead", "suite-live", "suite-new"}) {
    ASSERT_TRUE(make_directories(directory() + "/" + name + "/run"));
  }
  ASSERT_TRUE(own_suite(directory() + "/suite-dead"));
  const UniqueFd live = own_suite(directory() + "/suite-live");
  ASSERT_TRUE(live);
  remove_stale_suites(directory(), "suite-");
  EXPECT_NE(::access((directory() + "/suite-dead").c_str(), F_OK), 0);
  EXPECT_EQ(::access((directory() + "/suite-live/run").c_str(), F_OK), 0);
  EXPECT_EQ(::access((directory() + "/suite-new/run").c_str(), F_OK), 0);
}

TEST_F(LaunchEndTest, HostileLeftoversAreRemoved) {
  const Result result = sh("cd /tmp && sandbox_probe deep && exit 4");
  EXPECT_EQ(result.status, 4) << result.err;
}

TEST_F(LaunchEndTest, WhatIsMountedInATreeIsNotRemovedWithIt) {
  const std::string tree = directory() + "/tree";
  ASSERT_TRUE(make_directories(tree + "/below/mounted"));
  for (const char* place : {"/mounted", "/below/mounted"}) {
    ASSERT_TRUE(make_directories(tree + place));
    ASSERT_EQ(::mount("tmpfs", (tree + place).c_str(), "tmpfs", 0, nullptr), 0);
    ASSERT_TRUE(make_directories(tree + place + "/kept"));
    const Status status = remove_tree(tree);
    EXPECT_FALSE(status);
    EXPECT_EQ(::access((tree + place + "/kept").c_str(), F_OK), 0);
    ASSERT_EQ(::umount((tree + place).c_str()), 0);
    EXPECT_TRUE(remove_tree(tree));
    EXPECT_NE(::access(tree.c_str(), F_OK), 0);
  }
}

}  // namespace
}  // namespace varve::launcher
