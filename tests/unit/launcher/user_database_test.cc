#include "launcher/user_database.h"

#include <gtest/gtest.h>

namespace varve::launcher {
namespace {

constexpr char kPasswd[] =
    "# comment\nroot:x:0:0:root:/root:/bin/sh\nbroken line\nbad:x:one:1::/:\n"
    "me:x:1000:1001:Me:/home/me:/bin/bash\nbig:x:70000:4294967294::/big:/bin/sh";
constexpr char kGroup[] = "root:x:0:\nus:x:2000:you,me\nthem:x:3000:someone\nmore:x:4000:me";

TEST(UserDatabaseTest, ANameBringsIdsGroupsAndHome) {
  const auto identity = parse_identity("me", kPasswd, kGroup);
  ASSERT_TRUE(identity) << identity.error().to_string();
  EXPECT_EQ(identity->uid, 1000u);
  EXPECT_EQ(identity->gid, 1001u);
  EXPECT_STREQ(identity->home, "/home/me");
  ASSERT_EQ(identity->group_count, 2u);
  EXPECT_EQ(identity->groups[0], 2000u);
  EXPECT_EQ(identity->groups[1], 4000u);
}

TEST(UserDatabaseTest, ANumberIsLookedUpAndMayBeUnknown) {
  const auto known = parse_identity("70000", kPasswd, kGroup);
  ASSERT_TRUE(known);
  EXPECT_EQ(known->gid, 4294967294u);
  EXPECT_STREQ(known->home, "/big");
  const auto unknown = parse_identity("5", "", "");
  ASSERT_TRUE(unknown);
  EXPECT_EQ(unknown->uid, 5u);
  EXPECT_EQ(unknown->gid, 0u);
  EXPECT_STREQ(unknown->home, "/");
}

TEST(UserDatabaseTest, AGroupMayBeGivenByNameOrNumber) {
  EXPECT_EQ(parse_identity("me:us", kPasswd, kGroup)->gid, 2000u);
  EXPECT_EQ(parse_identity("me:77", kPasswd, kGroup)->gid, 77u);
  EXPECT_EQ(parse_identity("me:us", kPasswd, kGroup)->group_count, 0u);
}

TEST(UserDatabaseTest, UnknownNamesAreErrors) {
  for (const char* user : {"nobody", "me:nogroup", "bad", "ME"}) {
    const auto identity = parse_identity(user, kPasswd, kGroup);
    ASSERT_FALSE(identity) << user;
    EXPECT_EQ(identity.error().code(), ErrorCode::kNotFound);
  }
}

TEST(UserDatabaseTest, TheIdThatMeansNoneIsNobodys) {
  for (const char* user : {"4294967295", "me:4294967295"}) {
    const auto identity = parse_identity(user, kPasswd, kGroup);
    ASSERT_FALSE(identity) << user;
    EXPECT_EQ(identity.error().code(), ErrorCode::kInvalidArgument);
    EXPECT_NE(identity.error().to_string().find("id 4294967295 means none"), std::string::npos);
  }
  const char* const passwd = "none:x:4294967295:1::/:\nme:x:1:1::/:\n";
  EXPECT_FALSE(parse_identity("none", passwd, ""));
  EXPECT_EQ(parse_identity("me", passwd, "us:x:4294967295:me\n")->group_count, 0u);
}

TEST(UserDatabaseTest, AnEndlessHomeIsCutNotOverrun) {
  const std::string passwd = "me:x:1:1::" + std::string(5000, 'h') + ":/bin/sh\n";
  const auto identity = parse_identity("me", passwd, "");
  ASSERT_TRUE(identity);
  EXPECT_EQ(std::string(identity->home).size(), sizeof identity->home - 1);
}

TEST(UserDatabaseTest, TooManyGroupsAreCutNotOverrun) {
  std::string group;
  for (int i = 0; i < 200; ++i)
    group += "g" + std::to_string(i) + ":x:" + std::to_string(1000 + i) + ":me\n";
  const auto identity = parse_identity("me", kPasswd, group);
  ASSERT_TRUE(identity);
  EXPECT_EQ(identity->group_count, MountsMessage::kGroupsMax);
}

TEST(UserDatabaseTest, RootNeedsNoFiles) {
  const auto identity = find_identity(-1, "");
  ASSERT_TRUE(identity);
  EXPECT_EQ(identity->uid, 0u);
  EXPECT_STREQ(identity->home, "/root");
}

}  // namespace
}  // namespace varve::launcher
