#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include <functional>

#include "chunkstore/erofs/crc32c.h"
#include "chunkstore/erofs/merged_walk.h"
#include "chunkstore/erofs/reader.h"
#include "tests/unit/chunkstore/erofs/memory_image.h"
#include "tests/unit/chunkstore/erofs/mkfs_image.h"

// Images that must be refused, each made from a good one by changing what its name says.
namespace varve::chunkstore::erofs {
namespace {

struct Offsets {
  uint64_t root = 0;  // of the inode structs
  uint64_t file = 0;
  uint64_t link = 0;
  uint64_t chunked = 0;
};

class HostileImageTest : public testing::Test {
 protected:
  void SetUp() override {
    mkfs_.write("file", std::string(5000, 'f'));
    ASSERT_EQ(setxattr(mkfs_.path("file").c_str(), "user.k", "value", 5, 0), 0);
    ASSERT_EQ(symlink("target", mkfs_.path("link").c_str()), 0);
    plain_ = mkfs_.make("-Eforce-inode-extended");
    chunked_ = mkfs_.make("-Eforce-inode-extended --chunksize=4096");
  }

  static uint64_t inode_offset(const Bytes& bytes, const std::string& path) {
    MemoryImage image(bytes);
    const auto reader = Reader::open(image);
    EXPECT_TRUE(reader.has_value());
    const auto inode = reader->walk(path);
    EXPECT_TRUE(inode.has_value());
    return inode->body_offset - sizeof(InodeExtended);
  }
  static void fix_checksum(Bytes& bytes) {
    store_le<uint32_t>(bytes.data() + kSuperBlockOffset + offsetof(SuperBlock, checksum), 0);
    const uint32_t sum = crc32c(
        0xFFFFFFFF, ByteView(bytes).subspan(kSuperBlockOffset, kBlockBytes - kSuperBlockOffset));
    store_le<uint32_t>(bytes.data() + kSuperBlockOffset + offsetof(SuperBlock, checksum), sum);
  }
  /// Opens the image and touches everything of its three entries.
  static Status read_everything(const Bytes& bytes) {
    MemoryImage image(bytes);
    VARVE_ASSIGN(const Reader reader, Reader::open(image));
    VARVE_ASSIGN(const Inode root, reader.inode(reader.root_nid()));
    VARVE_TRY(reader.read_directory(root, 0, [](const Dirent&, uint64_t) { return true; }));
    VARVE_ASSIGN(const Inode link, reader.walk("link"));
    VARVE_ASSIGN(const std::string target, reader.read_link(link));
    EXPECT_EQ(target, "target");
    VARVE_ASSIGN(const Inode file, reader.walk("file"));
    VARVE_ASSIGN(const auto xattrs, reader.xattrs(file));
    EXPECT_EQ(xattrs.size(), 1U);
    Bytes content(8192);
    VARVE_ASSIGN(const size_t size, reader.read(file, 0, content));
    EXPECT_EQ(size, 5000U);
    return {};
  }
  static void expect_refused(const Bytes& good, ErrorCode code, const char* what,
                             const std::function<void(Bytes&)>& change) {
    Bytes bad = good;
    change(bad);
    fix_checksum(bad);
    const Status status = read_everything(bad);
    ASSERT_FALSE(status.has_value()) << what;
    EXPECT_EQ(status.error().code(), code) << what << ": " << status.error().to_string();
  }
  template <class T>
  static std::function<void(Bytes&)> set(uint64_t offset, T value) {
    return [offset, value](Bytes& bytes) { store_le<T>(bytes.data() + offset, value); };
  }

  MkfsImage mkfs_;
  Bytes plain_;
  Bytes chunked_;
};

TEST_F(HostileImageTest, AcceptsTheImagesBeforeTheChange) {
  EXPECT_TRUE(read_everything(plain_));
  EXPECT_TRUE(read_everything(chunked_));
}

TEST_F(HostileImageTest, RefusesAWrongSuperBlock) {
  const uint64_t super = kSuperBlockOffset;
  expect_refused(plain_, ErrorCode::kCorruption, "magic", set<uint32_t>(super, 0x12345678));
  expect_refused(plain_, ErrorCode::kUnsupported, "block bits",
                 set<uint8_t>(super + offsetof(SuperBlock, block_bits), 9));
  expect_refused(plain_, ErrorCode::kUnsupported, "directory block bits",
                 set<uint8_t>(super + offsetof(SuperBlock, dir_block_bits), 1));
  expect_refused(plain_, ErrorCode::kUnsupported, "unknown feature",
                 set<uint32_t>(super + offsetof(SuperBlock, feature_incompat), 0x80000000));
  expect_refused(plain_, ErrorCode::kUnsupported, "devices",
                 set<uint16_t>(super + offsetof(SuperBlock, extra_device_count), 1));
  expect_refused(plain_, ErrorCode::kCorruption, "metadata area",
                 set<uint32_t>(super + offsetof(SuperBlock, meta_block), 0xFFFFFFFF));
  expect_refused(plain_, ErrorCode::kCorruption, "root nid",
                 set<uint16_t>(super + offsetof(SuperBlock, root_nid), 0xFFFF));
  expect_refused(plain_, ErrorCode::kCorruption, "nanoseconds",
                 set<uint32_t>(super + offsetof(SuperBlock, build_time_ns), 1'000'000'000));
  expect_refused(plain_, ErrorCode::kCorruption, "prefix table", [&](Bytes& bytes) {
    store_le<uint32_t>(bytes.data() + super + offsetof(SuperBlock, feature_incompat),
                       kFeatureIncompatXattrPrefixes);
    store_le<uint8_t>(bytes.data() + super + offsetof(SuperBlock, xattr_prefix_count), 5);
    store_le<uint32_t>(bytes.data() + super + offsetof(SuperBlock, xattr_prefix_start), 0xFFFFFFFF);
  });
}

TEST_F(HostileImageTest, RefusesAWrongSuperBlockChecksum) {
  Bytes bad = plain_;
  bad[kSuperBlockOffset + offsetof(SuperBlock, volume_name)] ^= 1;
  const Status status = read_everything(bad);
  ASSERT_FALSE(status.has_value());
  EXPECT_NE(status.error().to_string().find("checksum"), std::string::npos);
}

TEST_F(HostileImageTest, RefusesEveryTruncation) {
  for (size_t size = 0; size + 1 < plain_.size(); size += 129) {
    Bytes bad(plain_.begin(), plain_.begin() + static_cast<ptrdiff_t>(size));
    // Cutting off bytes that nothing refers to is harmless; what is read must be right or refused.
    MemoryImage image(bad);
    const auto reader = Reader::open(image);
    if (!reader) continue;
    const auto file = reader->walk("file");
    if (!file) continue;
    Bytes content(8192);
    const auto filled = reader->read(*file, 0, content);
    if (filled) {
      EXPECT_EQ(content[4999], 'f');
    }
  }
  EXPECT_FALSE(read_everything(Bytes()).has_value());
}

TEST_F(HostileImageTest, RefusesAWrongInode) {
  const uint64_t file = inode_offset(plain_, "file");
  expect_refused(plain_, ErrorCode::kUnsupported, "format bits", set<uint16_t>(file, 0x8001));
  expect_refused(plain_, ErrorCode::kUnsupported, "compressed", set<uint16_t>(file, 0x3));
  expect_refused(plain_, ErrorCode::kCorruption, "type", set<uint16_t>(file + 4, 0));
  expect_refused(plain_, ErrorCode::kCorruption, "size", set<uint64_t>(file + 8, UINT64_MAX));
  expect_refused(plain_, ErrorCode::kCorruption, "huge size",
                 set<uint64_t>(file + 8, uint64_t{1} << 62));
  expect_refused(plain_, ErrorCode::kCorruption, "data block",
                 set<uint32_t>(file + 16, 0xFFFFFFF0));
  expect_refused(plain_, ErrorCode::kCorruption, "mtime",
                 set<uint32_t>(file + offsetof(InodeExtended, mtime_ns), 0xFFFFFFFF));
  expect_refused(plain_, ErrorCode::kCorruption, "xattr count", set<uint16_t>(file + 2, 0xFFFF));
  expect_refused(plain_, ErrorCode::kCorruption, "root is a file",
                 set<uint16_t>(inode_offset(plain_, "") + 4, S_IFREG | 0644));
}

TEST_F(HostileImageTest, RefusesWrongXattrs) {
  const uint64_t body = inode_offset(plain_, "file") + sizeof(InodeExtended);
  expect_refused(plain_, ErrorCode::kCorruption, "shared count", set<uint8_t>(body + 4, 255));
  expect_refused(plain_, ErrorCode::kCorruption, "name size", set<uint8_t>(body + 12, 255));
  expect_refused(plain_, ErrorCode::kCorruption, "prefix", set<uint8_t>(body + 13, 77));
  expect_refused(plain_, ErrorCode::kCorruption, "long prefix", set<uint8_t>(body + 13, 0x80));
  expect_refused(plain_, ErrorCode::kCorruption, "value size", set<uint16_t>(body + 14, 0xFFFF));
  expect_refused(plain_, ErrorCode::kCorruption, "shared id", [&](Bytes& bytes) {
    store_le<uint8_t>(bytes.data() + body + 4, 1);
    store_le<uint32_t>(bytes.data() + body + 12, 0xFFFFFFFF);
    store_le<uint16_t>(bytes.data() + body - sizeof(InodeExtended) + 2, 2);
  });
}

TEST_F(HostileImageTest, RefusesWrongSymlinks) {
  const uint64_t link = inode_offset(plain_, "link");
  expect_refused(plain_, ErrorCode::kCorruption, "empty", set<uint64_t>(link + 8, 0));
  expect_refused(plain_, ErrorCode::kCorruption, "too long", set<uint64_t>(link + 8, 5000));
  expect_refused(plain_, ErrorCode::kCorruption, "across blocks", set<uint64_t>(link + 8, 4096));
  expect_refused(plain_, ErrorCode::kCorruption, "NUL",
                 set<uint8_t>(link + sizeof(InodeExtended) + 2, 0));
}

TEST_F(HostileImageTest, RefusesWrongDirectories) {
  MemoryImage image(plain_);
  const auto reader = Reader::open(image);
  ASSERT_TRUE(reader.has_value());
  const auto root = reader->inode(reader->root_nid());
  const auto extents = reader->extents(*root, 0, root->size);
  const uint64_t block = *extents->at(0).image_offset;
  expect_refused(plain_, ErrorCode::kCorruption, "no entries", set<uint16_t>(block + 8, 0));
  expect_refused(plain_, ErrorCode::kCorruption, "odd count", set<uint16_t>(block + 8, 13));
  expect_refused(plain_, ErrorCode::kCorruption, "count too large",
                 set<uint16_t>(block + 8, 12 * 340));
  expect_refused(plain_, ErrorCode::kCorruption, "offset goes back",
                 set<uint16_t>(block + 12 + 8, 1));
  expect_refused(plain_, ErrorCode::kCorruption, "offset outside",
                 set<uint16_t>(block + 12 + 8, 0xFFFF));
  expect_refused(plain_, ErrorCode::kCorruption, "slash in a name", set<uint8_t>(block + 48, '/'));
  expect_refused(plain_, ErrorCode::kCorruption, "out of order", set<uint8_t>(block + 48, 'z'));
  expect_refused(plain_, ErrorCode::kCorruption, "nid of an entry",
                 set<uint64_t>(block + 24, UINT64_MAX / 16));
}

TEST_F(HostileImageTest, RefusesWrongChunkMaps) {
  const uint64_t file = inode_offset(chunked_, "file");
  MemoryImage image(chunked_);
  const auto inode = Reader::open(image)->walk("file");
  ASSERT_EQ(inode->layout, Layout::kChunkBased);
  const uint64_t entry = (inode->layout_word & kChunkFormatIndexes) != 0 ? 8 : 4;
  const uint64_t map = align_up(inode->body_offset + inode->xattr_size, entry);
  expect_refused(chunked_, ErrorCode::kUnsupported, "format", set<uint32_t>(file + 16, 0x1000));
  expect_refused(chunked_, ErrorCode::kCorruption, "chunk outside",
                 set<uint32_t>(map + entry - 4, 0xFFFFFFF0));
  expect_refused(chunked_, ErrorCode::kCorruption, "map outside",
                 set<uint64_t>(file + 8, uint64_t{1} << 40));
}

/// An image whose tree lies in its first bytes, by its own account.
class NarrowImage final : public ImageSource {
 public:
  NarrowImage(ImageSource& image, uint64_t tree_bytes_max)
      : image_(image), tree_bytes_max_(tree_bytes_max) {}
  uint64_t size() const override { return image_.size(); }
  uint64_t tree_bytes_max() const override { return tree_bytes_max_; }
  Status read(uint64_t offset, MutableByteView to) override { return image_.read(offset, to); }

 private:
  ImageSource& image_;
  const uint64_t tree_bytes_max_;
};

TEST_F(HostileImageTest, AWalkEndsWhereMoreEntriesComeThanTheTreeHasRoomFor) {
  constexpr uint64_t kEntryBytesMin = 13;
  for (const uint64_t count_max : {1u, 2u}) {
    MemoryImage image(plain_);
    NarrowImage narrow(image, count_max * kEntryBytesMin);
    const auto reader = Reader::open(narrow);
    ASSERT_TRUE(reader.has_value());
    const MergedTree tree({&*reader});
    const Status walked =
        walk_tree(tree, *tree.root(), "", [](const WalkStep&) -> Status { return {}; });
    EXPECT_EQ(walked.has_value(), count_max == 2) << "there are two entries";
    if (!walked) {
      EXPECT_EQ(walked.error().code(), ErrorCode::kCorruption);
    }
  }
}

}  // namespace
}  // namespace varve::chunkstore::erofs
