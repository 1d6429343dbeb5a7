#include "base/remove_tree.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file_io.h"
#include "base/temp_dir.h"

namespace varve {
namespace {

class RemoveTreeTest : public testing::Test {
 protected:
  void SetUp() override { directory_.emplace(std::move(*TempDir::create("varve-remove-"))); }
  bool exists(const std::string& name) const {
    struct stat status;
    return ::lstat((directory_->path() + "/" + name).c_str(), &status) == 0;
  }
  std::optional<TempDir> directory_;
};

TEST_F(RemoveTreeTest, NothingThereIsNotAnError) {
  EXPECT_TRUE(remove_tree(directory_->path() + "/absent"));
}

TEST_F(RemoveTreeTest, DepthHasNoLimit) {
  // Deeper than any path can name and than descriptors can be open.
  rlimit files;
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &files), 0);
  const rlimit few{64, files.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  ASSERT_EQ(::mkdir((directory_->path() + "/t").c_str(), 0700), 0);
  UniqueFd at(::open((directory_->path() + "/t").c_str(), O_RDONLY | O_DIRECTORY));
  const std::string name(100, 'd');
  const char* const deep_name = name.c_str();
  for (int depth = 0; depth < 500; ++depth) {
    ASSERT_EQ(::mkdirat(at.get(), deep_name, 0700), 0);
    at.reset(::openat(at.get(), deep_name, O_RDONLY | O_DIRECTORY));
    ASSERT_TRUE(at);
  }
  at.reset();
  const Status status = remove_tree(directory_->path() + "/t");
  EXPECT_TRUE(status) << status.error().to_string();
  EXPECT_FALSE(exists("t"));
  EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &files), 0);
}

TEST_F(RemoveTreeTest, DirectoriesLargerThanOneListingAreEmptied) {
  const std::string tree = directory_->path() + "/t";
  for (const std::string& name : {tree, tree + "/sub", tree + "/sub/sub"}) {
    ASSERT_EQ(::mkdir(name.c_str(), 0700), 0);
    for (int i = 0; i < 5000; ++i) {
      ASSERT_EQ(::mknod((name + "/" + std::to_string(i)).c_str(), S_IFREG | 0600, 0), 0);
    }
  }
  const Status status = remove_tree(tree);
  EXPECT_TRUE(status) << status.error().to_string();
  EXPECT_FALSE(exists("t"));
}

TEST_F(RemoveTreeTest, LinksAreRemovedAndNeverFollowed) {
  ASSERT_TRUE(make_directories(directory_->path() + "/t/sub"));
  ASSERT_TRUE(make_directories(directory_->path() + "/keep"));
  ASSERT_TRUE(write_file_atomic(directory_->path() + "/keep/file", as_bytes("x")));
  ASSERT_EQ(::symlink("../../keep", (directory_->path() + "/t/sub/link").c_str()), 0);
  ASSERT_EQ(::symlink("../keep", (directory_->path() + "/t/link").c_str()), 0);
  ASSERT_EQ(::mkfifo((directory_->path() + "/t/sub/fifo").c_str(), 0600), 0);
  EXPECT_TRUE(remove_tree(directory_->path() + "/t"));
  EXPECT_FALSE(exists("t"));
  EXPECT_TRUE(exists("keep/file"));
}

TEST_F(RemoveTreeTest, NamesThatLookLikeOursDoNotConfuseIt) {
  for (const char* name : {"\x01removing.0", "\x01removing.1", "\x01removing.2"}) {
    ASSERT_TRUE(make_directories(directory_->path() + "/t/a/" + name + "/x"));
    ASSERT_TRUE(make_directories(directory_->path() + "/t/" + name + "/y/z"));
  }
  EXPECT_TRUE(remove_tree(directory_->path() + "/t"));
  EXPECT_FALSE(exists("t"));
}

}  // namespace
}  // namespace varve
