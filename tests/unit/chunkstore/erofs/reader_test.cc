#include "chunkstore/erofs/reader.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <set>

#include "tests/unit/chunkstore/erofs/memory_image.h"
#include "tests/unit/chunkstore/erofs/mkfs_image.h"

namespace varve::chunkstore::erofs {
namespace {

std::string pattern(size_t size, uint32_t seed) {
  std::string text(size, '\0');
  for (char& byte : text) {
    seed = seed * 1664525 + 1013904223;
    byte = static_cast<char>(seed >> 24);
  }
  return text;
}

std::string read_all(const Reader& reader, const Inode& inode) {
  std::string text(inode.size, '\0');
  const auto size = reader.read(inode, 0, {reinterpret_cast<uint8_t*>(text.data()), text.size()});
  EXPECT_TRUE(size.has_value()) << size.error().to_string();
  EXPECT_EQ(size.value_or(0), text.size());
  return text;
}

class ReaderTest : public testing::Test {
 protected:
  Reader open(const std::string& options = "") {
    image_ = std::make_unique<MemoryImage>(mkfs_.make(options));
    auto reader = Reader::open(*image_);
    EXPECT_TRUE(reader.has_value()) << reader.error().to_string();
    return *reader;
  }
  Inode walk(const Reader& reader, const std::string& path) {
    auto inode = reader.walk(path);
    EXPECT_TRUE(inode.has_value()) << path << ": " << inode.error().to_string();
    return inode.value_or(Inode{});
  }

  MkfsImage mkfs_;
  std::unique_ptr<MemoryImage> image_;
};

TEST_F(ReaderTest, ReadsFilesOfEverySizeAroundABlock) {
  const std::vector<size_t> sizes = {0, 1, 31, 4000, 4095, 4096, 4097, 8192, 12345, 1 << 20};
  for (const size_t size : sizes)
    mkfs_.write("f" + std::to_string(size), pattern(size, static_cast<uint32_t>(size)));
  const Reader reader = open();
  for (const size_t size : sizes) {
    const Inode inode = walk(reader, "f" + std::to_string(size));
    EXPECT_EQ(inode.size, size);
    EXPECT_EQ(read_all(reader, inode), pattern(size, static_cast<uint32_t>(size)));
  }
}

TEST_F(ReaderTest, ReadsAnyRangeAndStopsAtTheEnd) {
  const std::string content = pattern(10000, 1);
  mkfs_.write("f", content);
  const Reader reader = open();
  const Inode inode = walk(reader, "f");
  for (const uint64_t offset : {0, 1, 4095, 4096, 8191, 8192, 9999, 10000, 20000}) {
    std::string text(5000, 'x');
    const auto size =
        reader.read(inode, offset, {reinterpret_cast<uint8_t*>(text.data()), text.size()});
    ASSERT_TRUE(size.has_value());
    const std::string expected = offset < content.size() ? content.substr(offset, 5000) : "";
    EXPECT_EQ(text.substr(0, *size), expected);
  }
}

TEST_F(ReaderTest, ReadsChunkBasedFilesWithTheirHoles) {
  std::string content = pattern(16384, 3) + std::string(65536, '\0') + pattern(16384, 5);
  mkfs_.write("f", content);
  mkfs_.write("twin", content);
  const Reader reader = open("--chunksize=4096");
  const Inode inode = walk(reader, "f");
  EXPECT_EQ(inode.layout, Layout::kChunkBased);
  EXPECT_EQ(read_all(reader, inode), content);
  EXPECT_EQ(read_all(reader, walk(reader, "twin")), content);
  const auto extents = reader.extents(inode, 0, inode.size);
  ASSERT_TRUE(extents.has_value());
  uint64_t expected_offset = 0;
  for (const Extent& extent : *extents) {
    EXPECT_EQ(extent.file_offset, expected_offset);
    expected_offset += extent.size;
  }
  EXPECT_EQ(expected_offset, content.size());
}

TEST_F(ReaderTest, ReadsChunkIndexesOfAnyChunkSize) {
  const std::string content = pattern(100'000, 9);
  mkfs_.write("f", content);
  for (const char* chunk : {"4096", "8192", "65536", "1048576"}) {
    const Reader reader = open(std::string("-Eforce-chunk-indexes --chunksize=") + chunk);
    EXPECT_EQ(read_all(reader, walk(reader, "f")), content) << chunk;
  }
}

TEST_F(ReaderTest, ShowsTypesModesAndTimesInBothInodeSizes) {
  mkfs_.write("file", "x");
  ASSERT_EQ(chmod(mkfs_.path("file").c_str(), 06751), 0);
  ASSERT_EQ(mkfifo(mkfs_.path("fifo").c_str(), 0640), 0);
  ASSERT_EQ(mkdir(mkfs_.path("dir").c_str(), 01777), 0);
  ASSERT_EQ(chmod(mkfs_.path("dir").c_str(), 01777), 0);
  ASSERT_EQ(symlink("../a target", mkfs_.path("link").c_str()), 0);
  ASSERT_EQ(link(mkfs_.path("file").c_str(), mkfs_.path("dir/hard").c_str()), 0);
  for (const char* options : {"-Eforce-inode-compact", "-Eforce-inode-extended"}) {
    const Reader reader = open(options);
    EXPECT_EQ(walk(reader, "file").mode, S_IFREG | 06751U);
    EXPECT_EQ(walk(reader, "file").nlink, 2U);
    EXPECT_EQ(walk(reader, "file").nid, walk(reader, "/dir//hard").nid);
    EXPECT_EQ(walk(reader, "fifo").mode, S_IFIFO | 0640U);
    EXPECT_EQ(walk(reader, "dir").mode, S_IFDIR | 01777U);
    EXPECT_EQ(walk(reader, "dir").nlink, 2U);
    EXPECT_EQ(walk(reader, "").nlink, 3U);
    EXPECT_EQ(walk(reader, "file").mtime_s, 1000000007);
    EXPECT_EQ(walk(reader, "file").uid, getuid());
    const auto target = reader.read_link(walk(reader, "link"));
    ASSERT_TRUE(target.has_value());
    EXPECT_EQ(*target, "../a target");
  }
}

TEST_F(ReaderTest, ListsAndFindsEveryNameOfALargeDirectory) {
  std::set<std::string> names = {".", ".."};
  for (int i = 0; i < 3000; ++i) {
    const std::string name = "n" + std::to_string(i) + std::string(i % 200, 'y');
    names.insert(name);
    mkfs_.write(name, "");
  }
  const Reader reader = open();
  const Inode root = walk(reader, "");
  std::vector<std::string> seen;
  std::vector<uint64_t> cookies;
  ASSERT_TRUE(reader.read_directory(root, 0, [&](const Dirent& entry, uint64_t next) {
    seen.push_back(entry.name);
    cookies.push_back(next);
    return true;
  }));
  EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
  EXPECT_EQ(std::set<std::string>(seen.begin(), seen.end()), names);
  EXPECT_EQ(seen.size(), names.size());
  for (size_t i = 0; i < seen.size(); i += 97) {
    std::string next_name;
    ASSERT_TRUE(reader.read_directory(root, cookies[i], [&](const Dirent& entry, uint64_t) {
      next_name = entry.name;
      return false;
    }));
    EXPECT_EQ(next_name, i + 1 < seen.size() ? seen[i + 1] : "");
  }
  for (const std::string& name : names) {
    const auto found = reader.lookup(root, name);
    ASSERT_TRUE(found.has_value());
    ASSERT_TRUE(found->has_value()) << name;
    EXPECT_EQ((*found)->name, name);
    const auto absent = reader.lookup(root, name + "!");
    ASSERT_TRUE(absent.has_value());
    EXPECT_FALSE(absent->has_value());
  }
  EXPECT_FALSE(reader.walk("n1/x").has_value());
  EXPECT_EQ(reader.walk("absent").error().code(), ErrorCode::kNotFound);
}

TEST_F(ReaderTest, ReadsInlineAndSharedXattrs) {
  const std::map<std::string, std::string> common = {{"user.shared", std::string(300, 's')},
                                                     {"user.empty", ""}};
  for (int i = 0; i < 5; ++i) {
    const std::string name = "f" + std::to_string(i);
    mkfs_.write(name, pattern(100, 4));
    const std::string own = "own" + std::to_string(i);
    for (const auto& [key, value] : common)
      ASSERT_EQ(setxattr(mkfs_.path(name).c_str(), key.c_str(), value.data(), value.size(), 0), 0);
    ASSERT_EQ(setxattr(mkfs_.path(name).c_str(), "user.\xff\xfe", own.data(), own.size(), 0), 0);
  }
  for (const char* options : {"-x1", "-x1000"}) {
    const Reader reader = open(options);
    for (int i = 0; i < 5; ++i) {
      const auto xattrs = reader.xattrs(walk(reader, "f" + std::to_string(i)));
      ASSERT_TRUE(xattrs.has_value()) << xattrs.error().to_string();
      auto expected = common;
      expected["user.\xff\xfe"] = "own" + std::to_string(i);
      EXPECT_EQ(*xattrs, expected) << options;
    }
  }
}

TEST_F(ReaderTest, ReadsXattrNamesWithLongPrefixes) {
  mkfs_.write("f", "x");
  ASSERT_EQ(setxattr(mkfs_.path("f").c_str(), "user.k", "value", 5, 0), 0);
  Bytes bytes = mkfs_.make();
  uint64_t body = 0;
  {
    MemoryImage image(bytes);
    body = Reader::open(image)->walk("f")->body_offset;
  }
  // Two prefixes in the unused bytes before the superblock, each aligned to 4: `user.ab.` is
  // second.
  const std::string table("\2\0\6z\4\0\1ab.", 10);
  std::copy(table.begin(), table.end(), bytes.begin() + 512);
  uint8_t* const super = bytes.data() + kSuperBlockOffset;
  store_le<uint32_t>(super + offsetof(SuperBlock, feature_compat), 0);
  store_le<uint32_t>(super + offsetof(SuperBlock, feature_incompat), kFeatureIncompatXattrPrefixes);
  store_le<uint8_t>(super + offsetof(SuperBlock, xattr_prefix_count), 2);
  store_le<uint32_t>(super + offsetof(SuperBlock, xattr_prefix_start), 512 / 4);
  bytes[body + sizeof(XattrHeader) + offsetof(XattrEntry, name_index)] = kXattrLongPrefix | 1;
  MemoryImage image(bytes);
  const auto reader = Reader::open(image);
  ASSERT_TRUE(reader.has_value()) << reader.error().to_string();
  const auto xattrs = reader->xattrs(*reader->walk("f"));
  ASSERT_TRUE(xattrs.has_value()) << xattrs.error().to_string();
  EXPECT_EQ(*xattrs, (std::map<std::string, std::string>{{"user.ab.k", "value"}}));
}

}  // namespace
}  // namespace varve::chunkstore::erofs
