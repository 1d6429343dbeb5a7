#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <sys/xattr.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "tests/kernel/erofs_build/mounted_image.h"
#include "tests/unit/chunkstore/build/build_test.h"

// Images of our writer as the kernel and erofs-utils see them.
namespace varve::chunkstore {
namespace {

std::map<std::string, std::string> kernel_xattrs(const std::string& path) {
  std::map<std::string, std::string> xattrs;
  std::string list(70'000, '\0');
  const ssize_t list_size = llistxattr(path.c_str(), list.data(), list.size());
  EXPECT_GE(list_size, 0) << path << ": " << strerror(errno);
  for (ssize_t at = 0; at < list_size;) {
    const std::string name(list.data() + at);
    at += static_cast<ssize_t>(name.size()) + 1;
    std::string value(65'536, '\0');
    const ssize_t size = lgetxattr(path.c_str(), name.c_str(), value.data(), value.size());
    EXPECT_GE(size, 0) << path << ' ' << name << ": " << strerror(errno);
    value.resize(static_cast<size_t>(std::max<ssize_t>(0, size)));
    EXPECT_TRUE(xattrs.emplace(name, value).second) << "listed twice: " << name;
  }
  return xattrs;
}

std::string kernel_content(const std::string& path, uint64_t offset, size_t size) {
  const auto fd = open_file(path, O_RDONLY);
  EXPECT_TRUE(fd.has_value()) << fd.error().to_string();
  std::string text(size, '\0');
  const auto count =
      pread_some(fd->get(), offset, {reinterpret_cast<uint8_t*>(text.data()), text.size()});
  EXPECT_TRUE(count.has_value()) << count.error().to_string();
  text.resize(*count);
  return text;
}

uint32_t type_bits(EntryType type) {
  switch (type) {
    case EntryType::kRegular:
      return S_IFREG;
    case EntryType::kDirectory:
      return S_IFDIR;
    case EntryType::kSymlink:
      return S_IFLNK;
    case EntryType::kCharDevice:
      return S_IFCHR;
    case EntryType::kBlockDevice:
      return S_IFBLK;
    case EntryType::kFifo:
      return S_IFIFO;
    default:
      return S_IFSOCK;
  }
}

/// Compares the mounted path with the entry that it was made from.
void expect_same(const std::string& root, const TestEntry& test) {
  const Entry& entry = test.entry;
  const std::string path = root + "/" + entry.path;
  struct stat found;
  ASSERT_EQ(lstat(path.c_str(), &found), 0) << path << ": " << strerror(errno);
  EXPECT_EQ(found.st_mode, type_bits(entry.type) | entry.mode) << path;
  EXPECT_EQ(found.st_uid, entry.uid) << path;
  EXPECT_EQ(found.st_gid, entry.gid) << path;
  EXPECT_EQ(found.st_mtim.tv_sec, entry.mtime_s) << path;
  EXPECT_EQ(found.st_mtim.tv_nsec, entry.mtime_ns) << path;
  EXPECT_EQ(kernel_xattrs(path), entry.xattrs) << path;
  switch (entry.type) {
    case EntryType::kRegular:
      EXPECT_EQ(static_cast<uint64_t>(found.st_size), entry.size) << path;
      EXPECT_EQ(kernel_content(path, 0, entry.size + 1), test.content) << path;
      break;
    case EntryType::kSymlink: {
      std::string target(5000, '\0');
      const ssize_t size = readlink(path.c_str(), target.data(), target.size());
      EXPECT_EQ(target.substr(0, static_cast<size_t>(std::max<ssize_t>(0, size))), entry.target);
      break;
    }
    case EntryType::kCharDevice:
    case EntryType::kBlockDevice:
      EXPECT_EQ(major(found.st_rdev), entry.rdev_major) << path;
      EXPECT_EQ(minor(found.st_rdev), entry.rdev_minor) << path;
      break;
    default:
      break;
  }
}

std::set<std::string> kernel_paths(const std::string& root) {
  std::set<std::string> paths = {""};
  for (const auto& item : std::filesystem::recursive_directory_iterator(root))
    paths.insert(item.path().lexically_relative(root));
  return paths;
}

/// Builds, checks with fsck.erofs, mounts and compares everything. False when it was skipped.
bool expect_round_trip(const std::vector<TestEntry>& entries) {
  const BuiltImage built = build_image(entries);
  MountedImage image(built.bytes);
  EXPECT_EQ(image.fsck(), "");
  if (!image.mount()) return false;
  std::set<std::string> expected = {""};
  for (const TestEntry& test : entries) {
    expect_same(image.path(), test);
    for (std::string path = test.entry.path; !path.empty();
         path.resize(path.find_last_of('/') == std::string::npos ? 0 : path.find_last_of('/')))
      expected.insert(path);
  }
  EXPECT_EQ(kernel_paths(image.path()), expected);
  return true;
}

TEST(ErofsMountTest, ShowsEveryTypeIdTimeAndMode) {
  std::vector<TestEntry> entries = {directory("")};
  int number = 0;
  const auto add = [&](EntryType type) -> TestEntry& {
    entries.push_back(make_entry("e" + std::to_string(number++), type, 0640));
    if (type == EntryType::kSymlink) entries.back().entry.target = "t";
    return entries.back();
  };
  for (const EntryType type :
       {EntryType::kRegular, EntryType::kDirectory, EntryType::kSymlink, EntryType::kFifo,
        EntryType::kSocket, EntryType::kCharDevice, EntryType::kBlockDevice}) {
    add(type).entry.rdev_minor = 1;
    for (const uint32_t id : {1U, 65535U, 65536U, 70000U, 2147483648U, 4294967294U}) {
      Entry& entry = add(type).entry;
      entry.uid = id;
      entry.gid = id - 1;
      entry.rdev_major = 4095;
      entry.rdev_minor = 1048575;
    }
    for (const int64_t mtime_s :
         {int64_t{-1}, int64_t{-62135596800}, int64_t{0}, int64_t{4294967296}, int64_t{1} << 40}) {
      Entry& entry = add(type).entry;
      entry.mtime_s = mtime_s;
      entry.mtime_ns = 999'999'999;
      entry.rdev_minor = 256;
    }
    for (const int mode : {0, 01777, 02755, 04711, 07777}) {
      Entry& entry = add(type).entry;
      entry.mode = static_cast<uint16_t>(mode);
      entry.rdev_major = 1;
    }
  }
  if (!expect_round_trip(entries)) GTEST_SKIP();
}

TEST(ErofsMountTest, ShowsContentOfEverySize) {
  std::vector<TestEntry> entries;
  for (const size_t size :
       {0, 1, 4095, 4096, 4097, 65536, 131071, 131072, 131073, 1 << 20, 5'000'001})
    entries.push_back(file("d/f" + std::to_string(size), noise(size, size)));
  for (const size_t gap : {65536, 65536 * 2 - 1, 1 << 20, 10'000'000}) {
    entries.push_back(file("s" + std::to_string(gap),
                           noise(100'000, gap) + std::string(gap, '\0') + noise(999, 1)));
    entries.push_back(file("z" + std::to_string(gap), std::string(gap, '\0')));
    entries.push_back(file("t" + std::to_string(gap), std::string(gap, '\0') + noise(70'000, 5)));
  }
  if (!expect_round_trip(entries)) GTEST_SKIP();
}

TEST(ErofsMountTest, ShowsSymlinksOfEveryLengthAndXattrsUpToTheLimits) {
  std::vector<TestEntry> entries;
  for (size_t size = 1; size <= 4095; size += 89)
    entries.push_back(symlink_to("l" + std::to_string(size), std::string(size, 'x')));
  for (size_t size = 0; size <= 65535; size += 3855) {
    const std::string name = std::to_string(size);
    for (const TestEntry& base : {file("f" + name, "x"), directory("d" + name),
                                  make_entry("p" + name, EntryType::kFifo, 0600)}) {
      entries.push_back(base);
      entries.back().entry.xattrs = {{"trusted.big", std::string(size, 'v')},
                                     {"security.other", "w"}};
    }
    entries.push_back(file("f" + name + ".user", ""));
    entries.back().entry.xattrs = {{"user.big", std::string(size, 'v')}};
    entries.push_back(symlink_to("x" + name, std::string(size % 4095 + 1, 'y')));
    entries.back().entry.xattrs = {{"trusted.big", std::string(size, 'v')}};
  }
  entries.push_back(file("all", "x"));
  for (int i = 0; i < 3; ++i)
    entries.back().entry.xattrs["user.k" + std::to_string(i)] = std::string(65'535, 'v');
  entries.push_back(file("names", "x"));
  for (int i = 0; i < 256; ++i)
    entries.back().entry.xattrs["user." + std::string(1, static_cast<char>(i == 0 ? 256 - 1 : i)) +
                                std::string(230, 'n')] = "v";
  entries.push_back(file("longest", "x"));
  entries.back().entry.xattrs = {{"user." + std::string(250, '\xFE'), ""}};
  entries.push_back(file("caps", "x"));
  // VFS_CAP_REVISION_2 with cap_net_raw, effective and permitted.
  const char capability[] = "\1\0\0\2\0\x20\0\0\0\0\0\0\0\0\0\0\0\0\0";
  entries.back().entry.xattrs = {{"security.capability", std::string(capability, 20)}};
  if (!expect_round_trip(entries)) GTEST_SKIP();
}

TEST(ErofsMountTest, ShowsPosixAcls) {
  // posix_acl_xattr version 2: owner rw-, user 1234 r-x, group ---, mask r-x, other ---.
  const unsigned char acl[] = {2, 0,   0,   0,   1,   0,   6,  0, 255, 255, 255, 255, 2,   0,  5,
                               0, 210, 4,   0,   0,   4,   0,  0, 0,   255, 255, 255, 255, 16, 0,
                               5, 0,   255, 255, 255, 255, 32, 0, 0,   0,   255, 255, 255, 255};
  const std::string value(reinterpret_cast<const char*>(acl), sizeof(acl));
  TestEntry entry = file("f", "x");
  entry.entry.mode = 0650;
  entry.entry.xattrs = {{"system.posix_acl_access", value}};
  TestEntry dir = directory("d", 0750);
  dir.entry.xattrs = {{"system.posix_acl_access", value}, {"system.posix_acl_default", value}};
  if (!expect_round_trip({entry, dir})) GTEST_SKIP();
}

TEST(ErofsMountTest, ListsAndFindsTheNamesOfLargeDirectories) {
  std::vector<TestEntry> entries;
  for (int i = 0; i < 20'000; ++i) {
    std::string name = std::to_string(i * 7919 % 20'000);
    if (i % 5 == 0) name.resize(255, static_cast<char>('!' + i % 90 == '/' ? 'x' : '!' + i % 90));
    entries.push_back(i % 9 == 0 ? directory("d/" + name) : file("d/" + name, ""));
  }
  const BuiltImage built = build_image(entries);
  MountedImage image(built.bytes);
  EXPECT_EQ(image.fsck(), "");
  if (!image.mount()) GTEST_SKIP();
  std::set<std::string> expected = {"", "d"};
  struct stat found;
  uint32_t directories = 0;
  for (const TestEntry& test : entries) {
    if (expected.insert(test.entry.path).second && test.entry.type == EntryType::kDirectory)
      ++directories;
    EXPECT_EQ(lstat((image.path() + "/" + test.entry.path).c_str(), &found), 0) << test.entry.path;
  }
  EXPECT_EQ(kernel_paths(image.path()), expected);
  ASSERT_EQ(lstat((image.path() + "/d").c_str(), &found), 0);
  EXPECT_EQ(static_cast<uint32_t>(found.st_nlink), built.inode("d").nlink);
  EXPECT_NE(lstat((image.path() + "/d/absent").c_str(), &found), 0);
}

TEST(ErofsMountTest, HoldsVeryManyNamesInOneDirectory) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  constexpr int kCount = 100'000;  // Sanitizers take ten times as long and find nothing new here.
#else
  constexpr int kCount = 1'000'000;
#endif
  MemorySink sink;
  LayerBuilder builder({}, sink);
  for (int i = 0; i < kCount; ++i) {
    Entry entry = make_entry("d/name-" + std::to_string(i), EntryType::kRegular, 0644).entry;
    ASSERT_TRUE(builder.add(std::move(entry)));
  }
  auto layer = builder.finish();
  ASSERT_TRUE(layer.has_value()) << layer.error().to_string();
  MountedImage image(sink.image(*layer));
  EXPECT_EQ(image.fsck(), "");
  if (!image.mount()) GTEST_SKIP();
  int listed = 0;
  for (const auto& item : std::filesystem::directory_iterator(image.path() + "/d"))
    listed += item.is_regular_file() ? 1 : 0;
  EXPECT_EQ(listed, kCount);
  struct stat found;
  for (int i = 0; i < kCount; i += 9973)
    EXPECT_EQ(lstat((image.path() + "/d/name-" + std::to_string(i)).c_str(), &found), 0) << i;
}

TEST(ErofsMountTest, CountsHardLinksOfEveryType) {
  const BuiltImage built = build_image(
      {file("f", noise(200'000, 1)), hard_link("a/f", "f"), hard_link("z", "f"),
       symlink_to("l", "t"), hard_link("l2", "l"), make_entry("p", EntryType::kFifo, 0600),
       hard_link("a/p", "p"), device("c", EntryType::kCharDevice, 1, 3), hard_link("c2", "c")});
  MountedImage image(built.bytes);
  EXPECT_EQ(image.fsck(), "");
  if (!image.mount()) GTEST_SKIP();
  const std::vector<std::vector<std::string>> groups = {
      {"f", "a/f", "z"}, {"l", "l2"}, {"p", "a/p"}, {"c", "c2"}};
  for (const auto& names : groups) {
    std::set<ino_t> inodes;
    for (const std::string& name : names) {
      struct stat found;
      ASSERT_EQ(lstat((image.path() + "/" + name).c_str(), &found), 0);
      EXPECT_EQ(found.st_nlink, names.size()) << name;
      inodes.insert(found.st_ino);
    }
    EXPECT_EQ(inodes.size(), 1U) << names[0];
  }
  EXPECT_EQ(kernel_content(image.path() + "/a/f", 0, 300'000), noise(200'000, 1));
}

/// A file of `size` bytes with some data near each end, whose holes it can tell.
class SparseStream final : public ContentStream {
 public:
  explicit SparseStream(uint64_t size) : size_(size) {}
  Result<size_t> read(MutableByteView to) override {
    const uint64_t end = position_ < kDataBytes ? kDataBytes : size_;
    const size_t size = std::min<uint64_t>(to.size(), end - position_);
    std::fill_n(to.begin(), size, position_ < kDataBytes ? 'a' : 'z');
    position_ += size;
    return size;
  }
  Result<uint64_t> skip_hole() override {
    if (position_ < kDataBytes || position_ >= size_ - kDataBytes) return 0;
    const uint64_t skipped = size_ - kDataBytes - position_;
    position_ += skipped;
    return skipped;
  }
  static constexpr uint64_t kDataBytes = 10'000;

 private:
  uint64_t size_;
  uint64_t position_ = 0;
};

TEST(ErofsMountTest, ReadsBothEndsOfSparseFilesOfTerabytes) {
  MemorySink sink;
  LayerBuilder builder({}, sink);
  const std::vector<uint64_t> sizes = {5'000'000'000, uint64_t{1} << 40, uint64_t{1} << 43};
  for (const uint64_t size : sizes) {
    SparseStream stream(size);
    Entry entry = file("f" + std::to_string(size), "").entry;
    entry.size = size;
    entry.stream = &stream;
    ASSERT_TRUE(builder.add(entry));
  }
  const BuiltImage built = open_image(sink, *builder.finish());
  MountedImage image(built.bytes);
  EXPECT_EQ(image.fsck(), "");
  if (!image.mount()) GTEST_SKIP();
  for (const uint64_t size : sizes) {
    const std::string path = image.path() + "/f" + std::to_string(size);
    struct stat found;
    ASSERT_EQ(lstat(path.c_str(), &found), 0);
    EXPECT_EQ(static_cast<uint64_t>(found.st_size), size);
    EXPECT_EQ(kernel_content(path, 0, 12'000), std::string(10'000, 'a') + std::string(2'000, '\0'));
    EXPECT_EQ(kernel_content(path, size - 12'000, 20'000),
              std::string(2'000, '\0') + std::string(10'000, 'z'));
    EXPECT_EQ(kernel_content(path, size / 2, 100), std::string(100, '\0'));
  }
}

TEST(ErofsMountTest, EachLayerHasAUuidOfItsOwn) {
  // Overlayfs refuses to number inodes of lower filesystems whose uuids are null or alike.
  std::set<uint64_t> ids;
  for (const std::string content : {"one", "two"}) {
    const BuiltImage built = build_image({file("f", content)});
    const uint8_t* uuid =
        built.bytes.data() + erofs::kSuperBlockOffset + offsetof(erofs::SuperBlock, uuid);
    ids.insert(load_le<uint64_t>(uuid));
  }
  EXPECT_EQ(ids.size(), 2U);
  EXPECT_FALSE(ids.contains(0));
}

}  // namespace
}  // namespace varve::chunkstore
