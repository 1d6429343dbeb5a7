#include "base/file_io.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "base/temp_dir.h"

namespace varve {
namespace {

class FileIoTest : public ::testing::Test {
 protected:
  TempDir dir_ = TempDir::create("varve-file-io-").value();
  std::string path(const std::string& name) { return dir_.path() + "/" + name; }
};

TEST_F(FileIoTest, AtomicWriteReplacesAndLeavesNoTemporaryFile) {
  ASSERT_TRUE(write_file_atomic(path("f"), as_bytes("one")));
  ASSERT_TRUE(write_file_atomic(path("f"), as_bytes("two")));
  EXPECT_EQ(as_text(read_file(path("f"), 100).value()), "two");
  size_t entry_count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(dir_.path())) {
    ++entry_count;
  }
  EXPECT_EQ(entry_count, 1u);
}

TEST_F(FileIoTest, AtomicWriteIntoAMissingDirectoryNamesThePath) {
  const Status status = write_file_atomic(path("no/f"), as_bytes("x"));
  ASSERT_FALSE(status);
  EXPECT_NE(status.error().to_string().find("no/f"), std::string::npos);
}

TEST_F(FileIoTest, ReadFileRefusesMoreThanAllowed) {
  ASSERT_TRUE(write_file_atomic(path("f"), Bytes(5000, 7)));
  EXPECT_EQ(read_file(path("f"), 5000).value().size(), 5000u);
  EXPECT_EQ(read_file(path("f"), 4999).error().code(), ErrorCode::kInvalidArgument);
  EXPECT_FALSE(read_file("/proc/self/status", 1 << 20).value().empty());
}

TEST_F(FileIoTest, ExactReadPastTheEndIsCorruption) {
  ASSERT_TRUE(write_file_atomic(path("f"), as_bytes("abc")));
  const UniqueFd fd = open_file(path("f"), O_RDONLY).value();
  Bytes bytes(4);
  EXPECT_EQ(pread_exact(fd.get(), 0, bytes).error().code(), ErrorCode::kCorruption);
  EXPECT_EQ(pread_some(fd.get(), 1, bytes).value(), 2u);
}

TEST_F(FileIoTest, DescriptorsAreBornCloexec) {
  const UniqueFd fd = open_unlinked_temp(dir_.path()).value();
  EXPECT_EQ(::fcntl(fd.get(), F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
  struct stat status;
  ASSERT_EQ(::fstat(fd.get(), &status), 0);
  EXPECT_EQ(status.st_nlink, 0u);
}

TEST_F(FileIoTest, MakeDirectoriesIsIdempotentAndNamesAFileInTheWay) {
  ASSERT_TRUE(make_directories(path("a/b/c")));
  ASSERT_TRUE(make_directories(path("a/b/c")));
  ASSERT_TRUE(write_file_atomic(path("a/f"), as_bytes("")));
  const Status status = make_directories(path("a/f/g"));
  ASSERT_FALSE(status);
  EXPECT_NE(status.error().to_string().find("a/f"), std::string::npos);
}

TEST(TempDirTest, RemovesItsTreeButNotWhatALinkPointsTo) {
  TempDir outside = TempDir::create("varve-outside-").value();
  ASSERT_TRUE(write_file_atomic(outside.path() + "/kept", as_bytes("x")));
  std::string path;
  {
    TempDir dir = TempDir::create("varve-temp-").value();
    path = dir.path();
    ASSERT_TRUE(make_directories(path + "/a/b"));
    ASSERT_EQ(::symlink(outside.path().c_str(), (path + "/a/link").c_str()), 0);
  }
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_TRUE(std::filesystem::exists(outside.path() + "/kept"));
}

}  // namespace
}  // namespace varve
