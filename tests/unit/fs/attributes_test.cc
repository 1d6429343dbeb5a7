#include "fs/view/attributes.h"

#include <dirent.h>
#include <gtest/gtest.h>

namespace varve::fs {
namespace {

TEST(AttributesTest, BlocksCountInSectors) {
  chunkstore::erofs::Inode inode;
  inode.size = 513;
  inode.mtime_s = -5;
  inode.mtime_ns = 7;
  const fuse::Attr attributes = tree_attributes(9, inode);
  EXPECT_EQ(attributes.blocks, 2u);
  EXPECT_EQ(attributes.mtime, -5);
  EXPECT_EQ(attributes.ctime_ns, 7u);
  EXPECT_EQ(attributes.ino, 9u);
}

TEST(AttributesTest, EveryErofsTypeHasItsDirectoryEntryType) {
  EXPECT_EQ(directory_entry_type(1), DT_REG);
  EXPECT_EQ(directory_entry_type(2), DT_DIR);
  EXPECT_EQ(directory_entry_type(7), DT_LNK);
  EXPECT_EQ(directory_entry_type(8), DT_UNKNOWN);
  EXPECT_EQ(directory_entry_type(255), DT_UNKNOWN);
}

TEST(DirectoryWriterTest, FillsNoMoreThanItsBuffer) {
  // A name of 4 bytes takes 24 + 4, padded to 32.
  Bytes buffer(64);
  DirectoryWriter writer(buffer, false);
  EXPECT_TRUE(writer.fits("name"));
  writer.add("name", 1, DT_REG, 1, {});
  EXPECT_FALSE(writer.fits("a longer name"));
  EXPECT_TRUE(writer.fits("name"));
  writer.add("next", 2, DT_DIR, 2, {});
  EXPECT_EQ(writer.size(), 64u);
  EXPECT_FALSE(writer.fits(""));
  const auto second = load_le<fuse::Dirent>(buffer.data() + 32);
  EXPECT_EQ(second.ino, 2u);
  EXPECT_EQ(second.name_length, 4u);
  EXPECT_EQ(second.type, uint32_t{DT_DIR});
}

TEST(DirectoryWriterTest, PutsTheEntryBeforeTheNameWithAttributes) {
  Bytes buffer(4096);
  DirectoryWriter writer(buffer, true);
  fuse::Attr attributes{};
  attributes.ino = 77;
  writer.add("x", 77, DT_REG, 1, permanent_entry(attributes));
  EXPECT_EQ(writer.size(), align_up(sizeof(fuse::DirentPlus) + 1, 8));
  EXPECT_EQ(load_le<fuse::EntryOut>(buffer.data()).node_id, 77u);
}

}  // namespace
}  // namespace varve::fs
