#include "chunkstore/layer_pack/output_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>

#include "base/file_io.h"
#include "base/temp_dir.h"

namespace varve::layer_pack {
namespace {

class OutputFileTest : public ::testing::Test {
 protected:
  size_t name_count() const {
    size_t count = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(dir_.path())) {
      ++count;
    }
    return count;
  }

  TempDir dir_ = TempDir::create("varve-output-file-").value();
  std::string path_ = dir_.path() + "/out";
};

TEST_F(OutputFileTest, TheNameAppearsWithTheWholeContent) {
  {
    OutputFile file = OutputFile::create(path_).value();
    ASSERT_TRUE(file.write(as_bytes("begin")));
    ASSERT_TRUE(file.write_zeros(3 << 20));
    ASSERT_TRUE(file.write(as_bytes("end")));
    EXPECT_FALSE(std::filesystem::exists(path_));
    ASSERT_TRUE(file.publish());
  }
  const Bytes content = read_file(path_, 10 << 20).value();
  ASSERT_EQ(content.size(), (3u << 20) + 8);
  EXPECT_EQ(as_text(ByteView(content).first(5)), "begin");
  EXPECT_EQ(content[5], 0);
  EXPECT_EQ(as_text(ByteView(content).last(3)), "end");
  EXPECT_EQ(name_count(), 1u);
}

TEST_F(OutputFileTest, WithoutPublishNothingIsLeftAndTheOldFileStays) {
  ASSERT_TRUE(write_file_atomic(path_, as_bytes("old")));
  {
    OutputFile file = OutputFile::create(path_).value();
    ASSERT_TRUE(file.write(Bytes(5 << 20, 1)));
  }
  EXPECT_EQ(as_text(read_file(path_, 10).value()), "old");
  EXPECT_EQ(name_count(), 1u);
}

TEST_F(OutputFileTest, AKilledWriterLeavesNothingBehind) {
  // On a filesystem that surely has files without names.
  const TempDir dir = TempDir::create("varve-output-file-", "/dev/shm").value();
  const std::string path = dir.path() + "/" + std::string(255, 'n');  // no room for a suffix
  const auto is_empty = [&] { return std::filesystem::is_empty(dir.path()); };
  for (const char* text : {"first", "second"}) {
    OutputFile file = OutputFile::create(path).value();
    ASSERT_TRUE(file.write(Bytes(2 << 20, 1)));
    ASSERT_TRUE(file.write(as_bytes(text)));
    EXPECT_EQ(is_empty(), text == std::string("first"));
    const Status published = file.publish();
    ASSERT_TRUE(published) << published.error().to_string();
    const Bytes content = read_file(path, 10 << 20).value();
    EXPECT_TRUE(as_text(content).ends_with(text));
    const auto names = std::filesystem::directory_iterator(dir.path());
    EXPECT_EQ(std::distance(begin(names), end(names)), 1);
  }
}

TEST_F(OutputFileTest, WhatASymlinkLeadsToIsReplacedAndNotTheSymlink) {
  std::filesystem::create_directory(dir_.path() + "/elsewhere");
  ASSERT_TRUE(write_file_atomic(dir_.path() + "/elsewhere/file", as_bytes("old")));
  std::filesystem::create_symlink("elsewhere/file", path_);
  OutputFile file = OutputFile::create(path_).value();
  ASSERT_TRUE(file.write(as_bytes("new")));
  EXPECT_EQ(as_text(read_file(path_, 10).value()), "old");
  ASSERT_TRUE(file.publish());
  EXPECT_TRUE(std::filesystem::is_symlink(path_));
  EXPECT_EQ(as_text(read_file(dir_.path() + "/elsewhere/file", 10).value()), "new");
}

TEST_F(OutputFileTest, DevicesAreWrittenToAndNotReplaced) {
  OutputFile file = OutputFile::create("/dev/null").value();
  ASSERT_TRUE(file.write(as_bytes("x")));
  ASSERT_TRUE(file.publish());
  struct stat status;
  ASSERT_EQ(::stat("/dev/null", &status), 0);
  EXPECT_TRUE(S_ISCHR(status.st_mode));
}

TEST_F(OutputFileTest, AFullDiskIsAnErrorThatNamesTheFile) {
  OutputFile file = OutputFile::create("/dev/full").value();
  const Status status = file.write(Bytes(2 << 20, 1));
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code(), ErrorCode::kNoSpace);
  EXPECT_NE(status.error().to_string().find("/dev/full"), std::string::npos);
}

TEST_F(OutputFileTest, AMissingDirectoryIsAnErrorThatNamesIt) {
  const auto file = OutputFile::create(dir_.path() + "/no/out");
  ASSERT_FALSE(file);
  EXPECT_NE(file.error().to_string().find("/no/out"), std::string::npos);
}

}  // namespace
}  // namespace varve::layer_pack
