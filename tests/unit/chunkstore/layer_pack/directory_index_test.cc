#include "chunkstore/layer_pack/directory_index.h"

#include <gtest/gtest.h>

namespace varve::layer_pack {
namespace {

using chunkstore::Entry;
using chunkstore::EntryType;

class DirectoryIndexTest : public ::testing::Test {
 protected:
  void record(uint32_t layer, const std::string& path, EntryType type, uint16_t mode = 0755) {
    Entry entry;
    entry.path = path;
    entry.type = type;
    entry.mode = mode;
    entry.uid = 70000;
    entry.gid = 5;
    entry.mtime_s = -7;
    entry.mtime_ns = 9;
    entry.xattrs = {{"user.a", std::string("\0b", 2)}, {"user.c", ""}};
    ASSERT_TRUE(index_->record(layer, entry));
  }

  /// Mode of what the layers below `layer` show, 0 for nothing, -1 for hidden.
  int find(uint32_t layer, const std::string& path) {
    const auto answer = index_->find(layer, path).value();
    if (answer.is_hidden) return -1;
    return answer.attributes ? answer.attributes->mode : 0;
  }

  std::unique_ptr<DirectoryIndex> index_ = DirectoryIndex::create("/tmp").value();
};

TEST_F(DirectoryIndexTest, TheNearestLayerBelowThatHasTheDirectoryCounts) {
  record(0, "a", EntryType::kDirectory, 0700);
  record(2, "a", EntryType::kDirectory, 0711);
  EXPECT_EQ(find(0, "a"), 0);
  EXPECT_EQ(find(1, "a"), 0700);
  EXPECT_EQ(find(2, "a"), 0700);
  EXPECT_EQ(find(3, "a"), 0711);
  EXPECT_EQ(find(3, "b"), 0);
}

TEST_F(DirectoryIndexTest, EveryAttributeComesBack) {
  record(0, "a/b", EntryType::kDirectory, 01777);
  const auto attributes = index_->find(1, "a/b").value().attributes;
  ASSERT_TRUE(attributes);
  EXPECT_EQ(attributes->mode, 01777);
  EXPECT_EQ(attributes->uid, 70000u);
  EXPECT_EQ(attributes->gid, 5u);
  EXPECT_EQ(attributes->mtime_s, -7);
  EXPECT_EQ(attributes->mtime_ns, 9u);
  EXPECT_EQ(attributes->xattrs, (std::map<std::string, std::string>{
                                    {"user.a", std::string("\0b", 2)}, {"user.c", ""}}));
}

TEST_F(DirectoryIndexTest, WhiteoutsAndOpaqueDirectoriesHideWhatIsBelowThem) {
  record(0, "a/b/c", EntryType::kDirectory, 0700);
  record(1, "a/b", EntryType::kWhiteout);
  EXPECT_EQ(find(1, "a/b/c"), 0700);
  EXPECT_EQ(find(2, "a/b/c"), -1);
  EXPECT_EQ(find(2, "a"), 0);
  record(0, "o/x", EntryType::kDirectory, 0700);
  record(1, "o", EntryType::kOpaque);
  record(1, "o", EntryType::kDirectory, 0711);
  EXPECT_EQ(find(2, "o"), 0711);
  EXPECT_EQ(find(2, "o/x"), -1);
}

}  // namespace
}  // namespace varve::layer_pack
