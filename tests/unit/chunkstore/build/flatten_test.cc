#include "chunkstore/build/flatten.h"

#include <gtest/gtest.h>

#include "tests/unit/chunkstore/build/build_test.h"

namespace varve::chunkstore {
namespace {

using Paths = std::vector<std::string>;

/// Builds layers, lowest first, and flattens them.
class FlattenTest : public testing::Test {
 protected:
  void layer(const std::vector<TestEntry>& entries) {
    auto built = build(sink_, entries);
    ASSERT_TRUE(built.has_value()) << built.error().to_string();
    images_.push_back(open_image(sink_, std::move(*built)));
  }
  std::vector<FlattenInput> inputs() const {
    std::vector<FlattenInput> inputs;
    for (const BuiltImage& image : images_)
      inputs.push_back({image.reader.get(), image.layer.image_size, image.layer.metadata_size,
                        image.layer.chunks});
    return inputs;
  }
  BuiltImage flat() {
    const uint64_t before = sink_.submitted_bytes();
    auto built = flatten(inputs(), {}, sink_);
    EXPECT_TRUE(built.has_value()) << built.error().to_string();
    // No data was copied: only the new metadata went into the sink.
    EXPECT_EQ(sink_.submitted_bytes() - before, built->metadata_size);
    return open_image(sink_, std::move(*built));
  }

  MemorySink sink_;
  std::vector<BuiltImage> images_;
};

TEST_F(FlattenTest, OfOneLayerShowsTheSameTree) {
  TestEntry odd = file("d/odd", noise(9'000, 3));
  odd.entry.uid = 70000;
  odd.entry.mtime_ns = 7;
  odd.entry.xattrs = {{"user.k", "v"}, {"trusted.overlay.opaque", "y"}};
  layer({odd, file("big", noise(1'000'000, 1)), symlink_to("l", "t"), hard_link("d/hard", "big"),
         file("sparse", noise(70'000, 2) + std::string(300'000, '\0') + "x"), file("empty", ""),
         device("c", EntryType::kCharDevice, 1, 3)});
  const BuiltImage built = flat();
  EXPECT_EQ(built.paths(), images_[0].paths());
  for (const std::string& path : built.paths()) {
    const erofs::Inode a = built.inode(path);
    const erofs::Inode b = images_[0].inode(path);
    EXPECT_EQ(std::tie(a.mode, a.uid, a.gid, a.nlink, a.size, a.mtime_s, a.mtime_ns, a.rdev),
              std::tie(b.mode, b.uid, b.gid, b.nlink, b.size, b.mtime_s, b.mtime_ns, b.rdev))
        << path;
    EXPECT_EQ(built.xattrs(path), images_[0].xattrs(path)) << path;
    if (S_ISREG(a.mode)) {
      EXPECT_EQ(built.content(path), images_[0].content(path)) << path;
    }
  }
  EXPECT_EQ(built.inode("big").nid, built.inode("d/hard").nid);
  // The same tree in the same layout, so even the bytes are the same.
  EXPECT_EQ(built.bytes, images_[0].bytes);
}

TEST_F(FlattenTest, AnOpaqueDirectoryInTheMiddleHidesForEver) {
  layer({file("dir/old", "1")});
  layer({directory("dir"), opaque("dir")});
  layer({file("dir/new", "3")});
  const BuiltImage built = flat();
  EXPECT_EQ(built.names("dir"), Paths{"new"});
  EXPECT_TRUE(built.xattrs("dir").empty());
}

TEST_F(FlattenTest, ADirectoryThatIsMadeAgainAfterAWhiteoutIsEmpty) {
  layer({file("d/x", "1")});
  layer({whiteout("d")});
  layer({file("d/y", "3")});
  EXPECT_EQ(flat().names("d"), Paths{"y"});
}

TEST_F(FlattenTest, TypesMayChangeFromLayerToLayer) {
  layer({file("p", "file"), file("q/x", "1"), file("r/x", "1")});
  layer({file("p/q", "below"), file("q", "file now"), symlink_to("r", "p")});
  const BuiltImage built = flat();
  EXPECT_EQ(built.content("p/q"), "below");
  EXPECT_EQ(built.content("q"), "file now");
  EXPECT_TRUE(S_ISLNK(built.inode("r").mode));
  EXPECT_EQ(built.names(""), (Paths{"p", "q", "r"}));
}

TEST_F(FlattenTest, DirectoriesMergeAndTheUpperAttributesCount) {
  TestEntry lower = directory("d", 0700);
  lower.entry.xattrs = {{"user.lower", "1"}};
  layer({lower, file("d/a", "1"), file("d/both", "old"), file("only", noise(300'000, 1))});
  layer({directory("d", 0711), file("d/b", "2"), file("d/both", noise(400'000, 2))});
  const BuiltImage built = flat();
  EXPECT_EQ(built.names("d"), (Paths{"a", "b", "both"}));
  EXPECT_EQ(built.inode("d").mode, S_IFDIR | 0711U);
  EXPECT_TRUE(built.xattrs("d").empty());
  EXPECT_EQ(built.content("d/both"), noise(400'000, 2));
  EXPECT_EQ(built.content("only"), noise(300'000, 1));
}

TEST_F(FlattenTest, WhiteoutsGoAndCountsFollow) {
  layer({file("a", "1"), file("d/x", "1"), hard_link("d/y", "a"), directory("sub/deep")});
  layer({whiteout("a"), whiteout("sub"), whiteout("never-was"), whiteout("d/x")});
  const BuiltImage built = flat();
  EXPECT_EQ(built.names(""), Paths{"d"});
  EXPECT_EQ(built.names("d"), Paths{"y"});
  EXPECT_EQ(built.inode("d/y").nlink, 1U);
  EXPECT_EQ(built.inode("").nlink, 3U);
  EXPECT_EQ(built.layer.counts.whiteouts, 0U);
}

TEST_F(FlattenTest, HardLinksOfDifferentLayersStayApart) {
  layer({file("a", "1"), hard_link("b", "a")});
  layer({file("c", "2"), hard_link("d", "c"), symlink_to("l", "t"), hard_link("l2", "l")});
  const BuiltImage built = flat();
  EXPECT_EQ(built.inode("a").nid, built.inode("b").nid);
  EXPECT_EQ(built.inode("c").nid, built.inode("d").nid);
  EXPECT_EQ(built.inode("l").nid, built.inode("l2").nid);
  EXPECT_NE(built.inode("a").nid, built.inode("c").nid);
  EXPECT_EQ(built.inode("d").nlink, 2U);
  EXPECT_EQ(built.content("d"), "2");
}

TEST_F(FlattenTest, AnOpaqueRootHidesAllLayersBelow) {
  layer({file("a", "1")});
  layer({opaque(""), file("b", "2")});
  layer({file("c", "3")});
  EXPECT_EQ(flat().names(""), (Paths{"b", "c"}));
}

TEST_F(FlattenTest, FlattensWhatWasFlattened) {
  layer({file("a", noise(200'000, 1)), file("b", "x")});
  layer({file("c", noise(5'000, 2)), whiteout("b")});
  BuiltImage once = flat();
  images_.clear();
  images_.push_back(std::move(once));
  layer({file("d", "4")});
  const BuiltImage built = flat();
  EXPECT_EQ(built.names(""), (Paths{"a", "c", "d"}));
  EXPECT_EQ(built.content("a"), noise(200'000, 1));
  EXPECT_EQ(built.content("c"), noise(5'000, 2));
}

TEST_F(FlattenTest, RefusesChunkListsThatDoNotFit) {
  layer({file("a", noise(200'000, 1))});
  auto short_list = inputs();
  short_list[0].chunks.pop_back();
  EXPECT_EQ(flatten(short_list, {}, sink_).error().code(), ErrorCode::kCorruption);
  auto wrong_boundary = inputs();
  wrong_boundary[0].metadata_size += 4096;
  EXPECT_EQ(flatten(wrong_boundary, {}, sink_).error().code(), ErrorCode::kCorruption);
  EXPECT_EQ(flatten({}, {}, sink_).error().code(), ErrorCode::kInvalidArgument);
}

TEST_F(FlattenTest, RefusesDirectoriesThatHoldThemselves) {
  layer({directory("a/b")});
  // Make `a`'s entry `b` lead back to `a`.
  BuiltImage& image = images_[0];
  const erofs::Inode a = image.inode("a");
  const auto extents = image.reader->extents(a, 0, a.size);
  const uint64_t third_entry = *extents->at(0).image_offset + 2 * sizeof(erofs::DirentHead);
  store_le<uint64_t>(image.bytes.data() + third_entry, a.nid);
  // Without the superblock's checksum, which covers this inode too.
  store_le<uint32_t>(
      image.bytes.data() + erofs::kSuperBlockOffset + offsetof(erofs::SuperBlock, feature_compat),
      0);
  image.image = std::make_unique<erofs::MemoryImage>(image.bytes);
  *image.reader = *erofs::Reader::open(*image.image);
  const auto built = flatten(inputs(), {}, sink_);
  ASSERT_FALSE(built.has_value());
  EXPECT_EQ(built.error().code(), ErrorCode::kCorruption);
  EXPECT_NE(built.error().to_string().find("'a/b'"), std::string::npos);
}

}  // namespace
}  // namespace varve::chunkstore
