#include <gtest/gtest.h>

#include <algorithm>

#include "tests/unit/chunkstore/build/build_test.h"

// Which tree entries make: duplicates, links, implied directories, whiteouts.
namespace varve::chunkstore {
namespace {

using Paths = std::vector<std::string>;

TEST(TreeResolverTest, TheLastOfSeveralEntriesForAPathCounts) {
  TestEntry twice = file("f", "third");
  twice.entry.mode = 0600;
  const BuiltImage built =
      build_image({file("f", "first"), symlink_to("f", "second"), twice, directory("d", 0700),
                   file("d/x", "1"), directory("d", 0711)});
  EXPECT_EQ(built.content("f"), "third");
  EXPECT_EQ(built.inode("f").mode, S_IFREG | 0600U);
  EXPECT_EQ(built.inode("d").mode, S_IFDIR | 0711U);
  EXPECT_EQ(built.content("d/x"), "1");
}

TEST(TreeResolverTest, ThePathIsBounded) {
  std::string path;
  for (int i = 0; i < 8191; ++i) path += "d/";
  const BuiltImage built = build_image({file(path + "f", "deep"), file("e", "1")});
  EXPECT_EQ(built.content(path + "f"), "deep");
  EXPECT_EQ(built.content("e"), "1");
  EXPECT_NE(build_error({file(path + "gg/f", "1")}).find("longer than 16384 bytes"),
            std::string::npos);
}

TEST(TreeResolverTest, HardLinksKeepTheInodeThatTheirTargetHadWhenTheyCame) {
  const BuiltImage built = build_image({file("a", "old"), hard_link("b", "a"), hard_link("c", "b"),
                                        file("a", "new"), hard_link("d", "a")});
  EXPECT_EQ(built.content("a"), "new");
  EXPECT_EQ(built.content("b"), "old");
  EXPECT_EQ(built.inode("b").nid, built.inode("c").nid);
  EXPECT_EQ(built.inode("a").nid, built.inode("d").nid);
  EXPECT_EQ(built.inode("a").nlink, 2U);
  EXPECT_EQ(built.inode("b").nlink, 2U);
}

TEST(TreeResolverTest, HardLinksMayComeBeforeTheirTargetsAndInChains) {
  const BuiltImage built = build_image(
      {hard_link("z", "y"), hard_link("y", "x/deep"), file("x/deep", noise(300'000, 1))});
  EXPECT_EQ(built.content("z"), noise(300'000, 1));
  EXPECT_EQ(built.inode("z").nlink, 3U);
  EXPECT_EQ(built.inode("x/deep").nid, built.inode("z").nid);
}

TEST(TreeResolverTest, HardLinksOfEveryTypeAreOneInode) {
  const BuiltImage built =
      build_image({make_entry("fifo", EntryType::kFifo, 0600), hard_link("fifo2", "fifo"),
                   device("dev", EntryType::kCharDevice, 5, 1), hard_link("dev2", "dev"),
                   symlink_to("link", "t"), hard_link("link2", "link"),
                   make_entry("sock", EntryType::kSocket, 0600), hard_link("sock2", "sock")});
  for (const std::string name : {"fifo", "dev", "link", "sock"}) {
    EXPECT_EQ(built.inode(name).nid, built.inode(name + "2").nid) << name;
    EXPECT_EQ(built.inode(name).nlink, 2U) << name;
  }
  EXPECT_EQ(erofs::rdev_minor(built.inode("dev2").rdev), 1U);
}

TEST(TreeResolverTest, AnInodeWhoseOwnPathWasReplacedLivesOnUnderItsLinks) {
  for (const size_t size : {size_t{5'000}, size_t{500'000}}) {
    const std::string content = noise(size, 3);
    const BuiltImage built =
        build_image({file("m", content), hard_link("z", "m"), hard_link("b", "m"), directory("m")});
    EXPECT_EQ(built.content("b"), content);
    EXPECT_EQ(built.inode("z").nlink, 2U);
    EXPECT_TRUE(S_ISDIR(built.inode("m").mode));
  }
}

TEST(TreeResolverTest, RefusesHardLinksThatLeadNowhere) {
  EXPECT_NE(build_error({hard_link("a", "b")}).find("'a' to 'b'"), std::string::npos);
  EXPECT_NE(build_error({directory("d"), hard_link("a", "d")}).find("it is a directory"),
            std::string::npos);
  EXPECT_NE(build_error({hard_link("a", "b"), hard_link("b", "a")}).find("back to itself"),
            std::string::npos);
  EXPECT_NE(build_error({whiteout("b"), hard_link("a", "b")}).find("no such entry"),
            std::string::npos);
}

TEST(TreeResolverTest, ImpliedDirectoriesTakeTheAttributesOfTheBase) {
  LayerBuilderOptions options;
  options.base_directory = [](std::string_view path) -> Result<std::optional<DirectoryAttributes>> {
    if (path != "a") return std::nullopt;
    DirectoryAttributes attributes;
    attributes.mode = 0700;
    attributes.uid = 5;
    attributes.xattrs = {{"user.k", "v"}};
    return attributes;
  };
  const BuiltImage built = build_image({file("a/b/c", "x")}, Contents::kStreamed, options);
  EXPECT_EQ(built.inode("a").mode, S_IFDIR | 0700U);
  EXPECT_EQ(built.inode("a").uid, 5U);
  EXPECT_EQ(built.xattrs("a").size(), 1U);
  EXPECT_EQ(built.inode("a/b").mode, S_IFDIR | 0755U);
  EXPECT_EQ(built.inode("a/b").mtime_s, 0);
  EXPECT_EQ(built.content("a/b/c"), "x");
}

TEST(TreeResolverTest, RefusesEntriesBelowSomethingThatIsNoDirectory) {
  for (const auto& parent : {file("a", "x"), symlink_to("a", "b")}) {
    const std::string message = build_error({file("a/b/c", "y"), parent});
    EXPECT_NE(message.find("'a/b/c'"), std::string::npos) << message;
    EXPECT_NE(message.find("'a'"), std::string::npos) << message;
  }
  EXPECT_NE(build_error({file("a", "x"), opaque("a")}).find("'a'"), std::string::npos);
}

TEST(TreeResolverTest, WhiteoutsAndOpaqueMarksMeanTheSameInEveryOrder) {
  std::vector<TestEntry> entries = {whiteout("gone"),          whiteout("file"),
                                    file("file", "x"),         whiteout("dir"),
                                    directory("dir"),          file("dir/x", "y"),
                                    whiteout("implied"),       file("implied/deep/x", "z"),
                                    whiteout("missing/child"), opaque("marked"),
                                    file("marked/x", "1"),     whiteout("marked/sub"),
                                    opaque("lonely"),          file("gone-not", "2")};
  const Bytes expected = build_image(entries).bytes;
  std::sort(entries.begin(), entries.end(), [](const TestEntry& a, const TestEntry& b) {
    return std::pair(a.entry.path, a.entry.type) < std::pair(b.entry.path, b.entry.type);
  });
  EXPECT_EQ(build_image(entries).bytes, expected);
  std::reverse(entries.begin(), entries.end());
  const BuiltImage built = build_image(entries);
  EXPECT_EQ(built.bytes, expected);

  const auto is_whiteout = [&](const std::string& path) {
    return built.inode(path).mode == S_IFCHR && built.inode(path).rdev == 0;
  };
  const auto is_opaque = [&](const std::string& path) {
    return built.xattrs(path).contains("trusted.overlay.opaque");
  };
  EXPECT_TRUE(is_whiteout("gone"));
  EXPECT_EQ(built.content("file"), "x");
  EXPECT_TRUE(is_opaque("dir"));
  EXPECT_EQ(built.names("dir"), Paths{"x"});
  EXPECT_TRUE(is_opaque("implied"));
  EXPECT_FALSE(is_opaque("implied/deep"));
  EXPECT_TRUE(is_whiteout("missing/child"));
  EXPECT_FALSE(is_opaque("missing"));
  EXPECT_TRUE(is_opaque("marked"));
  EXPECT_TRUE(is_whiteout("marked/sub"));
  EXPECT_TRUE(is_opaque("lonely"));
  EXPECT_TRUE(built.names("lonely").empty());
  EXPECT_EQ(built.layer.counts.whiteouts, 3U);
  EXPECT_EQ(built.layer.counts.opaque_directories, 4U);
}

TEST(TreeResolverTest, CharDeviceZeroIsAWhiteoutOfAnUpperDirectoryOnly) {
  LayerBuilderOptions options;
  options.char_device_zero = CharDeviceZero::kWhiteout;
  const BuiltImage built =
      build_image({device("w", EntryType::kCharDevice, 0, 0)}, Contents::kStreamed, options);
  EXPECT_EQ(built.layer.counts.whiteouts, 1U);
  EXPECT_NE(build_error({device("w", EntryType::kCharDevice, 0, 0)}).find("'w'"),
            std::string::npos);
}

TEST(TreeResolverTest, SortsNamesThatShareBeginningsAsDirectoriesDo) {
  // '-' and '.' sort before '/' would: children must still follow their own directory.
  const BuiltImage built = build_image(
      {file("a/x", "1"), file("a-b/x", "2"), file("a.c", "3"), file("a/-", "4"), directory("a!")});
  EXPECT_EQ(built.names(""), (Paths{"a", "a!", "a-b", "a.c"}));
  EXPECT_EQ(built.names("a"), (Paths{"-", "x"}));
  EXPECT_EQ(built.names("a-b"), Paths{"x"});
  EXPECT_EQ(built.content("a-b/x"), "2");
}

TEST(TreeResolverTest, TakesPathsDeeperThanTheKernelsLimit) {
  std::string path = "d";
  for (int i = 0; i < 3000; ++i) path += "/d";
  const BuiltImage built = build_image({file(path + "/f", "deep")});
  EXPECT_EQ(built.content(path + "/f"), "deep");
}

}  // namespace
}  // namespace varve::chunkstore
