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
