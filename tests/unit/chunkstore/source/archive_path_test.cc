#include "chunkstore/source/archive_path.h"

#include <gtest/gtest.h>

namespace varve::chunkstore {
namespace {

TEST(ArchivePathTest, EverySpellingOfTheRootIsTheRoot) {
  for (const char* name : {"", ".", "./", "/", "//", "./.", "././/", "/."}) {
    EXPECT_EQ(normalise_archive_path(name).value(), "") << name;
  }
}

TEST(ArchivePathTest, DotsAndSlashesThatMeanNothingGo) {
  EXPECT_EQ(normalise_archive_path("./a").value(), "a");
  EXPECT_EQ(normalise_archive_path("a//b/./c/").value(), "a/b/c");
  EXPECT_EQ(normalise_archive_path("...").value(), "...");
  EXPECT_EQ(normalise_archive_path("a..b/.c").value(), "a..b/.c");
}

TEST(ArchivePathTest, NamesThatLeaveTheTreeAreRefusedByName) {
  for (const char* name : {"..", "../x", "a/../b", "a/..", "/etc/passwd"}) {
    const auto path = normalise_archive_path(name);
    ASSERT_FALSE(path) << name;
    EXPECT_EQ(path.error().code(), ErrorCode::kInvalidArgument);
    EXPECT_NE(path.error().to_string().find(name), std::string::npos);
  }
}

TEST(ArchivePathTest, NulBytesAndNamesOverTheLimitAreRefused) {
  EXPECT_FALSE(normalise_archive_path(std::string_view("a\0b", 3)));
  EXPECT_TRUE(normalise_archive_path("d/" + std::string(255, 'n')));
  EXPECT_FALSE(normalise_archive_path("d/" + std::string(256, 'n')));
}

TEST(ArchivePathTest, BytesThatAreNotUtf8StayAsTheyAre) {
  EXPECT_EQ(normalise_archive_path("./\xff/e\xcc\x81").value(), "\xff/e\xcc\x81");
}

TEST(ArchivePathTest, ParentAndBaseNameSplitAndJoinAgain) {
  for (const char* path : {"a", "a/b", "a/b/c"}) {
    EXPECT_EQ(join_path(parent_path(path), base_name(path)), path);
  }
  EXPECT_EQ(parent_path("a"), "");
  EXPECT_EQ(join_path("", ""), "");
}

}  // namespace
}  // namespace varve::chunkstore
