// The cgroups of a sandbox on the real hierarchies of this host.
#include "qos/cgroup.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include "base/temp_dir.h"

namespace varve::qos {
namespace {

class CgroupTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (::geteuid() != 0) {
      std::printf("skipped: cgroups need root\n");
      std::exit(77);
    }
  }
  void TearDown() override {
    for (const char* hierarchy : {"", "/memory", "/cpu", "/pids", "/freezer", "/unified"}) {
      struct stat status;
      EXPECT_NE(
          ::stat((std::string("/sys/fs/cgroup") + hierarchy + "/varve-" + name()).c_str(), &status),
          0)
          << hierarchy;
    }
  }
  static std::string name() { return "test-" + std::to_string(::getpid()); }

  /// A host of which only some hierarchies are seen, by links.
  static TempDir part_of_host(std::initializer_list<const char*> hierarchies) {
    TempDir directory = std::move(*TempDir::create("varve-cgroup-"));
    for (const char* hierarchy : hierarchies) {
      const std::string target = std::string("/sys/fs/cgroup/") + hierarchy;
      EXPECT_EQ(::symlink(target.c_str(), (directory.path() + "/" + hierarchy).c_str()), 0);
    }
    return directory;
  }

  static Result<SandboxCgroup> create_all(const CgroupHost& host, const CgroupLimits& limits) {
    auto cgroup = SandboxCgroup::create(host, name(), limits);
    if (!cgroup) return cgroup;
    VARVE_TRY(cgroup->create_joined(host));
    return cgroup;
  }

  /// A fork bomb inside the groups. Its processes die with the groups or with this test.
  static pid_t start_bomb(const SandboxCgroup& cgroup) {
    const auto joins = cgroup.join_fds();
    const pid_t pid = ::fork();
    if (pid != 0) return pid;
    for (const int fd : joins) {
      if (::write(fd, "0", 1) != 1) ::_exit(1);
    }
    for (;;) {
      if (::fork() < 0) ::usleep(100);
      if (::getppid() == 1) ::_exit(0);  // Never outlive a failed test.
    }
  }

  static void expect_removal_kills(const CgroupHost& host) {
    auto cgroup = create_all(host, {.pids_max = 50});
    ASSERT_TRUE(cgroup) << cgroup.error().to_string();
    const pid_t bomb = start_bomb(*cgroup);
    ASSERT_GT(bomb, 0);
    ::usleep(50'000);
    const Status removed = cgroup->remove();
    EXPECT_TRUE(removed) << removed.error().to_string();
    int status = 0;
    EXPECT_EQ(::waitpid(bomb, &status, 0), bomb);
  }
};

bool is_hybrid() {
  struct stat status;
  return ::stat("/sys/fs/cgroup/freezer/tasks", &status) == 0;
}

TEST_F(CgroupTest, GroupsAreMadeLimitedMeasuredAndRemoved) {
  const auto host = CgroupHost::probe();
  ASSERT_TRUE(host) << host.error().to_string();
  auto cgroup =
      create_all(*host, {.memory_bytes_max = 64 << 20, .cpu_milli_max = 500, .pids_max = 10});
  ASSERT_TRUE(cgroup) << cgroup.error().to_string();
  const auto usage = cgroup->usage();
  ASSERT_TRUE(usage);
  EXPECT_TRUE(usage->memory_peak_bytes);
  EXPECT_EQ(usage->oom_kill_count, 0u);
  EXPECT_TRUE(cgroup->remove());
}

TEST_F(CgroupTest, AGroupThatADeadOwnerLeftIsReplaced) {
  const auto host = CgroupHost::probe();
  ASSERT_TRUE(host);
  auto first = create_all(*host, {.pids_max = 10});
  ASSERT_TRUE(first);
  auto second = create_all(*host, {.pids_max = 20});
  ASSERT_TRUE(second) << second.error().to_string();
  EXPECT_TRUE(second->remove());
  EXPECT_TRUE(first->remove()) << "what is gone already is no error";
}

TEST_F(CgroupTest, AForkBombDiesOnThisHost) {
  const auto host = CgroupHost::probe();
  ASSERT_TRUE(host);
  // Joining the v2 group is clone3's business; here the v1 groups hold the processes, if there are
  // any.
  if (!is_hybrid()) GTEST_SKIP() << "SKIP: cgroup-v1-memory: this host has no v1 hierarchies";
  const TempDir part = part_of_host({"memory", "cpu", "pids"});
  const auto v1 = CgroupHost::probe(part.path());
  ASSERT_TRUE(v1);
  expect_removal_kills(*v1);
}

TEST_F(CgroupTest, AForkBombDiesByTheV1Freezer) {
  if (!is_hybrid()) GTEST_SKIP() << "SKIP: cgroup-v1-memory: this host has no v1 hierarchies";
  const TempDir part = part_of_host({"memory", "pids", "freezer"});
  const auto host = CgroupHost::probe(part.path());
  ASSERT_TRUE(host);
  expect_removal_kills(*host);
}

TEST_F(CgroupTest, StaleGroupsGoWithTheirProcesses) {
  if (!is_hybrid()) GTEST_SKIP() << "SKIP: cgroup-v1-memory: this host has no v1 hierarchies";
  const TempDir part = part_of_host({"pids", "freezer"});
  const auto host = CgroupHost::probe(part.path());
  ASSERT_TRUE(host);
  auto cgroup = create_all(*host, {.pids_max = 50});
  ASSERT_TRUE(cgroup);
  const pid_t bomb = start_bomb(*cgroup);
  ::usleep(20'000);
  const Status removed = SandboxCgroup::remove_stale(*host, name(), deadline_after_ms(5000));
  EXPECT_TRUE(removed) << removed.error().to_string();
  int status = 0;
  EXPECT_EQ(::waitpid(bomb, &status, 0), bomb);
  EXPECT_TRUE(SandboxCgroup::remove_stale(*host, name(), deadline_after_ms(5000)))
      << "nothing there is not an error";
}

}  // namespace
}  // namespace varve::qos
