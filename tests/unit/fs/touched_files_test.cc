#include "fs/stats/touched_files.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/file_io.h"
#include "base/temp_dir.h"
#include "chunkstore/erofs/merged_walk.h"
#include "tests/support/fs/built_layer.h"

namespace varve::fs {
namespace {

class TouchedFilesTest : public ::testing::Test {
 protected:
  void put(const std::string& path, const Bytes& bytes) {
    const std::string file = dir_.path() + "/tree/" + path;
    ASSERT_TRUE(make_directories(file.substr(0, file.rfind('/'))));
    ASSERT_TRUE(write_file_atomic(file, bytes));
  }
  std::shared_ptr<AttachedLayer> attach() {
    const auto built = test::put_directory(*store_, dir_.path() + "/tree");
    auto source = LayerSource::open(session_, store_, built.id, dir_.path(), kNoDeadline).value();
    return AttachedLayer::open(std::move(source), dir_.path(), kNoDeadline).value();
  }
  /// Marks bytes of a file as a read of the image does.
  static void touch(AttachedLayer& layer, const char* path, uint64_t offset, uint64_t size) {
    const auto inode = layer.reader().walk(path).value();
    const auto extents = layer.reader().extents(inode, offset, size).value();
    for (const auto& extent : extents) {
      if (extent.image_offset) layer.stats().touched.mark(*extent.image_offset, extent.size);
    }
  }

  TempDir dir_ = TempDir::create("varve-touched-files-").value();
  std::shared_ptr<chunkstore::Store> store_ =
      chunkstore::open_store(dir_.path() + "/store", true).value();
  std::shared_ptr<StoreSession> session_ = std::make_shared<StoreSession>(
      "store", [this](const std::string&) { return store_; }, 1, [] { return nullptr; });
};

TEST_F(TouchedFilesTest, EachTouchedPageCountsForOneFile) {
  put("a/first", test::make_noise(10'000, 1));
  put("b/same", test::make_noise(10'000, 1));
  put("b/untouched", test::make_noise(10'000, 2));
  put("c", test::make_noise(300'000, 3));
  ASSERT_EQ(::link((dir_.path() + "/tree/c").c_str(), (dir_.path() + "/tree/d").c_str()), 0);
  const auto layer = attach();
  touch(*layer, "b/same", 0, 10'000);
  touch(*layer, "d", 4096, 2 * 4096);
  touch(*layer, "d", 200'000, 1);
  layer->stats().touched.mark(0, 1);
  const auto found = find_touched_files(*layer);
  ASSERT_TRUE(found) << found.error().to_string();
  ASSERT_EQ(found->files.size(), 2u);
  EXPECT_EQ(found->files[0].path, "a/first") << "the first of those that share the pages";
  EXPECT_EQ(found->files[0].size, 10'000u);
  EXPECT_EQ(found->files[0].touched_bytes, 3 * 4096u);
  EXPECT_EQ(found->files[1].path, "c") << "the first name of the inode";
  EXPECT_EQ(found->files[1].touched_bytes, 3 * 4096u);
  EXPECT_EQ(found->metadata_bytes, 4096u);
  EXPECT_EQ(found->other_bytes, 0u);
}

TEST_F(TouchedFilesTest, FilesWithHolesAndManyNamesAreFound) {
  const std::string sparse = dir_.path() + "/tree/sparse";
  put("sparse", test::make_noise(200'000, 1));
  ASSERT_EQ(::truncate(sparse.c_str(), 100 << 20), 0);
  for (int i = 0; i < 50; ++i) {
    ASSERT_EQ(::link(sparse.c_str(), (sparse + std::to_string(i)).c_str()), 0);
  }
  const auto layer = attach();
  touch(*layer, "sparse7", 0, 100 << 20);
  const auto found = find_touched_files(*layer);
  ASSERT_TRUE(found) << found.error().to_string();
  ASSERT_EQ(found->files.size(), 1u);
  EXPECT_EQ(found->files[0].path, "sparse");
  EXPECT_EQ(found->files[0].touched_bytes, layer->stats().touched.count() * 4096);
}

TEST_F(TouchedFilesTest, WalksOfAnAttachedTreeAreBoundedByItsMetadata) {
  put("big", test::make_noise(3 << 20, 1));
  const auto layer = attach();
  const chunkstore::erofs::MergedTree tree({&layer->reader()});
  EXPECT_EQ(tree.tree_bytes_max(), layer->metadata_bytes());
  EXPECT_LT(tree.tree_bytes_max(), layer->image_bytes());
}

}  // namespace
}  // namespace varve::fs
