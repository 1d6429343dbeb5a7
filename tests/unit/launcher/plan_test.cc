#include "launcher/plan.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <boost/json.hpp>

#include "base/file_io.h"

namespace varve::launcher {
namespace {

ImageInfo image() {
  ImageInfo info;
  info.id = "0123456789abcdef0123456789abcdef";
  info.config.env = {"LANG=C.UTF-8", "PATH=/opt/bin:/bin"};
  info.config.command = {"bash"};
  info.layers = {{.id = "lower"}, {.id = "upper"}};
  return info;
}

Spec spec() {
  Spec s;
  s.image = "x";
  return s;
}

Result<Plan> build_plan(const Spec& s, const ImageInfo& info, uint32_t slot) {
  Plan plan = begin_plan(s, "/state/" + std::to_string(slot));
  VARVE_TRY(finish_plan(plan, s, info, slot));
  return plan;
}

Plan plan_of(const Spec& s, const ImageInfo& info) {
  auto plan = build_plan(s, info, 5);
  EXPECT_TRUE(plan) << plan.error().to_string();
  return std::move(*plan);
}

std::vector<Operation> operations(const Plan& plan) {
  std::vector<Operation> all = plan.host_operations;
  all.insert(all.end(), plan.child_operations.begin(), plan.child_operations.end());
  return all;
}

std::vector<OpKind> kinds(const Plan& plan) {
  std::vector<OpKind> result;
  for (const Operation& operation : operations(plan)) result.push_back(operation.kind);
  return result;
}

bool has(const Plan& plan, OpKind kind) {
  return std::ranges::count(kinds(plan), kind) > 0;
}

size_t position(const Plan& plan, OpKind kind) {
  const auto all = kinds(plan);
  return static_cast<size_t>(std::ranges::find(all, kind) - all.begin());
}

Operation operation(const Plan& plan, OpKind kind) {
  return operations(plan)[position(plan, kind)];
}

/// Compares with tests/data/plans; VARVE_UPDATE_GOLDEN=1 writes instead, for a person to review.
void expect_golden(const std::string& name, const Plan& plan) {
  const std::string path = std::string(VARVE_GOLDEN_DIR) + "/" + name + ".json";
  const std::string text = plan_to_json(plan);
  if (::getenv("VARVE_UPDATE_GOLDEN") != nullptr) {
    ASSERT_TRUE(write_file_atomic(path, as_bytes(text)));
  }
  const auto expected = read_file(path, 1 << 20);
  ASSERT_TRUE(expected) << expected.error().to_string();
  EXPECT_EQ(text, as_text(*expected));
}

TEST(PlanTest, DefaultsMatchTheGoldenPlan) {
  expect_golden("defaults", plan_of(spec(), image()));
}

TEST(PlanTest, EveryOptionMatchesTheGoldenPlan) {
  Spec s = spec();
  s.command = {"python3", "-V"};
  s.memory_bytes_max = 1 << 30;
  s.rw_bytes_max = 64 << 20;
  s.network = NetworkMode::kHost;
  s.user = "70000:4294967294";
  s.workdir = "/w/d";
  s.env = {"LANG=de", "A=b"};
  s.terminal = s.allow_sudo = true;
  ImageInfo info = image();
  info.large_ids = {100000};
  expect_golden("every_option", plan_of(s, info));
}

TEST(PlanTest, TheJsonIsOneDocument) {
  boost::system::error_code error;
  const auto document = boost::json::parse(plan_to_json(plan_of(spec(), image())), error);
  ASSERT_FALSE(error);
  EXPECT_EQ(document.at("operations").as_array().size(),
            operations(plan_of(spec(), image())).size());
}

TEST(PlanTest, ASandboxNeverKeepsWhatProtectsTheHostOut) {
  for (const bool host_network : {false, true}) {
    Spec s = spec();
    s.network = host_network ? NetworkMode::kHost : NetworkMode::kNone;
    const Plan plan = plan_of(s, image());
    EXPECT_TRUE(has(plan, OpKind::kSeccomp));
    EXPECT_TRUE(has(plan, OpKind::kCapabilities));
    EXPECT_TRUE(has(plan, OpKind::kNoNewPrivileges));
    EXPECT_TRUE(has(plan, OpKind::kMaskFile));
    EXPECT_TRUE(has(plan, OpKind::kReadOnly));
    EXPECT_EQ(has(plan, OpKind::kLoopbackUp), !host_network);
  }
}

TEST(PlanTest, TheFilterComesBeforeTheCapabilitiesGo) {
  Spec s = spec();
  s.allow_sudo = true;
  const Plan plan = plan_of(s, image());
  EXPECT_FALSE(has(plan, OpKind::kNoNewPrivileges));
  EXPECT_LT(position(plan, OpKind::kSeccomp), position(plan, OpKind::kCapabilities));
}

TEST(PlanTest, HostFilesAreTakenBeforeTheHostDisappears) {
  Spec s = spec();
  s.network = NetworkMode::kHost;
  const Plan plan = plan_of(s, image());
  EXPECT_LT(position(plan, OpKind::kCloneHostFile), position(plan, OpKind::kEnterEmptyNamespace));
  EXPECT_LT(position(plan, OpKind::kOpenUpper), position(plan, OpKind::kEnterEmptyNamespace));
}

TEST(PlanTest, EveryLayerIsMapped) {
  const Plan plan = plan_of(spec(), image());
  EXPECT_EQ(std::ranges::count(kinds(plan), OpKind::kIdmapLower), 2);
}

TEST(PlanTest, WrittenFilesAreVolatileUnlessKept) {
  const std::pair<std::string, std::string> is_volatile{"volatile", ""};
  Spec s = spec();
  EXPECT_EQ(std::ranges::count(operation(plan_of(s, image()), OpKind::kMountOverlay).options,
                               is_volatile),
            1);
  s.keep = true;
  EXPECT_EQ(std::ranges::count(operation(plan_of(s, image()), OpKind::kMountOverlay).options,
                               is_volatile),
            0);
}

TEST(PlanTest, KeptFilesMustHaveTheIdsOfTheImage) {
  Spec s = spec();
  EXPECT_EQ(operation(plan_of(s, image()), OpKind::kIdmapUpper).value, 0u);
  s.keep = true;
  const Plan plan = plan_of(s, image());
  EXPECT_EQ(operation(plan, OpKind::kIdmapUpper).value, 1u);
  EXPECT_NE(plan_to_json(plan).find(R"("op":"idmap_upper","where":"host","required":true)"),
            std::string::npos);
}

TEST(PlanTest, TheCommandFollowsTheOciRules) {
  ImageInfo info = image();
  info.config.entrypoint = {"/entry", "-e"};
  Spec s = spec();
  using Words = std::vector<std::string>;
  EXPECT_EQ(plan_of(s, info).process.argv, (Words{"/entry", "-e", "bash"}));
  s.command = {"x", "y"};
  EXPECT_EQ(plan_of(s, info).process.argv, (Words{"/entry", "-e", "x", "y"}));
  s.entrypoint = "";
  EXPECT_EQ(plan_of(s, info).process.argv, (Words{"x", "y"}));
  s.entrypoint = "/other";
  EXPECT_EQ(plan_of(s, info).process.argv, (Words{"/other", "x", "y"}));
}

TEST(PlanTest, NothingToRunIsAnError) {
  ImageInfo info = image();
  info.config.command.clear();
  const auto plan = build_plan(spec(), info, 0);
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error().code(), ErrorCode::kInvalidArgument);
}

TEST(PlanTest, TheEnvironmentHasOneValueAName) {
  Spec s = spec();
  s.env = {"LANG=en", "LANG=fr", "HOME=/h"};
  const Process process = plan_of(s, image()).process;
  EXPECT_EQ(std::ranges::count(process.env, "LANG=fr"), 1);
  EXPECT_EQ(
      std::ranges::count_if(process.env, [](const auto& v) { return v.starts_with("LANG="); }), 1);
  EXPECT_FALSE(process.set_home);
}

TEST(PlanTest, ThePathIsTheSandboxsOwnAndSkipsEmptyElements) {
  Spec s = spec();
  s.env = {"PATH=/a::/b:"};
  s.command = {"tool"};
  EXPECT_EQ(plan_of(s, image()).process.candidates,
            (std::vector<std::string>{"/a/tool", "/b/tool"}));
  s.command = {"./tool"};
  EXPECT_EQ(plan_of(s, image()).process.candidates, (std::vector<std::string>{"./tool"}));
}

TEST(PlanTest, ALargeNumericUserGetsAPlaceInTheMap) {
  Spec s = spec();
  s.user = "70000:80000";
  const Plan plan = plan_of(s, image());
  ASSERT_EQ(plan.id_map.size(), 3u);
  EXPECT_EQ(plan.id_map[1].inside, 70000u);
  EXPECT_EQ(plan.id_map[2].inside, 80000u);
}

TEST(PlanTest, EveryKindHasANameAndASentence) {
  for (int i = 0; i <= static_cast<int>(OpKind::kCapabilities); ++i) {
    const auto kind = static_cast<OpKind>(i);
    EXPECT_FALSE(op_kind_name(kind).empty());
    EXPECT_EQ(describe({.kind = kind}).find("''"), std::string::npos);
  }
}

}  // namespace
}  // namespace varve::launcher
