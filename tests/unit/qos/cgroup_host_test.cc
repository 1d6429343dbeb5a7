#include <gtest/gtest.h>

#include <string>

#include "base/file_io.h"
#include "base/temp_dir.h"
#include "qos/cgroup.h"

namespace varve::qos {
namespace {

class CgroupHostTest : public testing::Test {
 protected:
  void SetUp() override {
    auto directory = TempDir::create("varve-cgroup-");
    ASSERT_TRUE(directory);
    directory_.emplace(std::move(*directory));
  }
  void add(const std::string& path, const std::string& content = "") {
    const std::string full = directory_->path() + "/" + path;
    ASSERT_TRUE(make_directories(full.substr(0, full.rfind('/'))));
    ASSERT_TRUE(write_file_atomic(full, as_bytes(content)));
  }
  std::optional<TempDir> directory_;
};

TEST_F(CgroupHostTest, AUnifiedHostHasOneHierarchyWithItsControllers) {
  add("cgroup.controllers", "cpuset cpu io memory pids\n");
  const auto host = CgroupHost::probe(directory_->path());
  ASSERT_TRUE(host);
  ASSERT_EQ(host->hierarchies().size(), 1u);
  EXPECT_TRUE(host->hierarchies()[0].is_v2);
  EXPECT_TRUE(host->has_memory());
  EXPECT_TRUE(host->has_cpu());
  EXPECT_TRUE(host->has_pids());
}

TEST_F(CgroupHostTest, CpusetIsNotTheCpuController) {
  add("cgroup.controllers", "cpuset memory\n");
  const auto host = CgroupHost::probe(directory_->path());
  ASSERT_TRUE(host);
  EXPECT_FALSE(host->has_cpu());
}

TEST_F(CgroupHostTest, CpuIsEnabledWhereOnlyCpusetIs) {
  add("cgroup.controllers", "cpuset cpu\n");
  add("cgroup.subtree_control", "cpuset\n");
  const auto host = CgroupHost::probe(directory_->path());
  ASSERT_TRUE(host);
  // A plain directory has no cpu.max to write to; what matters here has been done by then.
  EXPECT_FALSE(SandboxCgroup::create(*host, "x", {.cpu_milli_max = 500}));
  const auto written = read_file(directory_->path() + "/cgroup.subtree_control", 100);
  ASSERT_TRUE(written);
  EXPECT_TRUE(as_text(*written).starts_with("+cpu")) << as_text(*written);
}

TEST_F(CgroupHostTest, AHybridHostUsesV2ToKillAndV1ToLimit) {
  for (const char* controller : {"memory", "cpu", "pids", "freezer"}) {
    add(std::string(controller) + "/tasks");
  }
  add("unified/cgroup.controllers", "hugetlb\n");
  const auto host = CgroupHost::probe(directory_->path());
  ASSERT_TRUE(host);
  ASSERT_EQ(host->hierarchies().size(), 4u);
  EXPECT_EQ(host->hierarchies()[0].name, "unified");
  for (const auto& hierarchy : host->hierarchies()) EXPECT_FALSE(hierarchy.has_freezer);
}

TEST_F(CgroupHostTest, V1IsLookedForInASecondStep) {
  for (const char* controller : {"memory", "pids"}) add(std::string(controller) + "/tasks");
  add("unified/cgroup.controllers", "");
  auto host = CgroupHost::begin_probe(directory_->path());
  ASSERT_TRUE(host);
  EXPECT_FALSE(host->is_complete());
  ASSERT_EQ(host->hierarchies().size(), 1u);
  const CgroupHierarchy* unified = &host->hierarchies()[0];
  // Whether the limit can be kept is not known yet.
  auto cgroup = SandboxCgroup::create(*host, "x", {.cpu_milli_max = 500});
  ASSERT_TRUE(cgroup) << cgroup.error().to_string();
  ASSERT_TRUE(host->finish_probe());
  EXPECT_TRUE(host->is_complete());
  EXPECT_EQ(host->hierarchies().size(), 3u);
  EXPECT_EQ(&host->hierarchies()[0], unified);
  const Status joined = cgroup->create_joined(*host);
  ASSERT_FALSE(joined);
  EXPECT_EQ(joined.error().code(), ErrorCode::kUnsupported);
}

TEST_F(CgroupHostTest, AUnifiedHostIsCompleteAtOnce) {
  add("cgroup.controllers", "memory\n");
  const auto host = CgroupHost::begin_probe(directory_->path());
  ASSERT_TRUE(host);
  EXPECT_TRUE(host->is_complete());
  EXPECT_TRUE(host->has_memory());
}

TEST_F(CgroupHostTest, AV1HostFreezesThroughItsFreezer) {
  for (const char* controller : {"memory", "pids", "freezer"}) {
    add(std::string(controller) + "/tasks");
  }
  const auto host = CgroupHost::probe(directory_->path());
  ASSERT_TRUE(host);
  ASSERT_EQ(host->hierarchies().size(), 3u);
  EXPECT_TRUE(host->hierarchies()[2].has_freezer);
  EXPECT_FALSE(host->has_cpu());
}

TEST_F(CgroupHostTest, AHostWithoutCgroupsIsAClearError) {
  const auto host = CgroupHost::probe(directory_->path());
  ASSERT_FALSE(host);
  EXPECT_EQ(host.error().code(), ErrorCode::kUnsupported);
}

TEST_F(CgroupHostTest, ALimitThatNobodyEnforcesIsRefused) {
  add("pids/tasks");
  const auto host = CgroupHost::probe(directory_->path());
  ASSERT_TRUE(host);
  const auto cgroup = SandboxCgroup::create(*host, "x", {.memory_bytes_max = 1 << 20});
  ASSERT_FALSE(cgroup);
  EXPECT_EQ(cgroup.error().code(), ErrorCode::kUnsupported);
}

}  // namespace
}  // namespace varve::qos
