// The same tree read as a directory and as what GNU tar makes of it. Needs root: devices, trusted
// xattrs and foreign owners are part of the tree.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>

#include "base/file_io.h"
#include "base/temp_dir.h"
#include "chunkstore/source/directory_source.h"
#include "chunkstore/source/tar_source.h"
#include "tests/unit/chunkstore/source/entry_collector.h"

namespace varve::chunkstore {
namespace {

constexpr int kSkipped = 77;

#define ASSERT_SYSCALL(call) ASSERT_EQ((call), 0) << #call << ": " << std::strerror(errno)

class TreeMaker {
 public:
  explicit TreeMaker(std::string root) : root_(std::move(root)) {}
  std::string path(const std::string& name) const { return root_ + "/" + name; }

  void file(const std::string& name, std::string_view content) const {
    const UniqueFd fd = open_file(path(name), O_WRONLY | O_CREAT | O_EXCL).value();
    ASSERT_TRUE(write_all(fd.get(), as_bytes(content)));
  }

  void make() const {
    make_names();
    make_attributes();
    make_links();
    make_sparse();
    set_times();
  }

 private:
  void make_names() const {
    ASSERT_SYSCALL(::mkdir(path("names").c_str(), 0755));
    file("names/e\xcc\x81", "decomposed");
    file("names/\xc3\xa9", "composed");
    file("names/latin\xe9", "not UTF-8");
    file("names/new\nline\\ \"'", "odd");
    file("names/" + std::string(255, 'n'), "long");
    file("names/.wh.not-a-whiteout", "content in a plain tree");
    std::string deep = "names/deep";
    for (int i = 0; i < 8; ++i) {
      ASSERT_SYSCALL(::mkdir(path(deep).c_str(), 0711));
      deep += "/" + std::string(100, static_cast<char>('a' + i));
    }
    ASSERT_SYSCALL(::symlink(std::string(4000, 't').c_str(), path("names/long-target").c_str()));
  }

  void xattr(const std::string& name, const std::string& key, std::string_view value) const {
    ASSERT_SYSCALL(::lsetxattr(path(name).c_str(), key.c_str(), value.data(), value.size(), 0));
  }

  void make_attributes() const {
    file("x", "with attributes");
    xattr("x", "user.\xff", std::string("\0\xff\n", 3));
    xattr("x", "user.a=b%=%25%3D", "v");
    xattr("x", "user.empty", "");
    xattr("x", "trusted.t", "t");
    xattr("x", "trusted.overlay.opaque", "y");
    file("cap", "#!");
    xattr("cap", "security.capability",
          std::string("\1\0\0\2\0\40\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 20));
    ASSERT_SYSCALL(::mkdir(path("acl").c_str(), 02770));
    ASSERT_EQ(std::system(("setfacl -m u:1234:rx,g:4294967294:r,u:7:rwx '" + path("acl") +
                           "' && setfacl -d -m u:7:rwx,o::- '" + path("acl") + "'")
                              .c_str()),
              0);
    file("acl/inherits", "default ACL applied");
    ASSERT_SYSCALL(::mkdir(path("d").c_str(), 01777));
    for (const uint32_t id : {70000u, 4294967294u}) {
      const std::string name = "d/" + std::to_string(id);
      file(name, "owned");
      ASSERT_SYSCALL(::chown(path(name).c_str(), id, id));
      ASSERT_SYSCALL(::chmod(path(name).c_str(), 06755));
    }
    ASSERT_SYSCALL(::mknod(path("c").c_str(), S_IFCHR | 0600, makedev(1, 3)));
    ASSERT_SYSCALL(::mknod(path("b").c_str(), S_IFBLK | 0600, makedev(4095, 0xfffff)));
    ASSERT_SYSCALL(::mkfifo(path("p").c_str(), 0644));
    ASSERT_SYSCALL(::symlink("x", path("s").c_str()));
    xattr("s", "trusted.on-a-link", "1");
  }

  void make_links() const {
    // GNU tar writes a second name of a device or FIFO as another device or FIFO.
    for (const char* name : {"x", "s", "cap"}) {
      ASSERT_SYSCALL(::linkat(AT_FDCWD, path(name).c_str(), AT_FDCWD,
                              path(std::string("d/link-of-") + name).c_str(), 0));
    }
  }

  void make_sparse() const {
    const UniqueFd fd = open_file(path("sparse"), O_RDWR | O_CREAT).value();
    for (int i = 0; i < 40; ++i) {
      ASSERT_TRUE(pwrite_all(fd.get(), static_cast<uint64_t>(i) << 18, as_bytes("data")));
    }
    ASSERT_SYSCALL(::ftruncate(fd.get(), 12 << 20));
  }

  void set_times() const {
    const auto set = [&](const char* name, int64_t seconds, long nanoseconds) {
      const timespec times[2] = {{0, 0}, {seconds, nanoseconds}};
      ASSERT_SYSCALL(::utimensat(AT_FDCWD, path(name).c_str(), times, AT_SYMLINK_NOFOLLOW));
    };
    set("x", -1, 250'000'000);
    set("cap", -3'000'000'000, 1);  // filesystems clamp what they cannot hold
    set("sparse", 8'589'934'592, 999'999'999);
    set("s", 5, 6);
    set("d", 1'700'000'000, 123'456'789);
  }

  std::string root_;
};

class TarDirectoryTest : public ::testing::TestWithParam<std::string> {};

TEST_P(TarDirectoryTest, GnuTarOfATreeGivesTheSameEntriesAsTheTree) {
  const TempDir dir = TempDir::create("varve-tar-directory-", GetParam()).value();
  const std::string tree = dir.path() + "/tree";
  ASSERT_SYSCALL(::mkdir(tree.c_str(), 0751));
  TreeMaker(tree).make();
  if (HasFatalFailure()) return;

  EntryCollector from_directory;
  Status status = open_directory_source(tree, {}).value()->read_into(from_directory);
  ASSERT_TRUE(status) << status.error().to_string();
  const auto expected = from_directory.describe();
  EXPECT_GT(expected.size(), 30u);

  for (const std::string flags : {"", "--sparse", "--sparse --sparse-version=0.0",
                                  "--sparse --sparse-version=0.1", "-z", "-J", "-j", "--zstd"}) {
    SCOPED_TRACE("tar " + flags);
    const std::string tar = dir.path() + "/t.tar";
    const std::string command = "tar --format=posix --xattrs --acls --numeric-owner " + flags +
                                " -cf '" + tar + "' -C '" + tree + "' .";
    ASSERT_EQ(std::system(command.c_str()), 0);
    EntryCollector from_tar;
    status = open_tar_source(tar, TarMode::kPlain).value()->read_into(from_tar);
    ASSERT_TRUE(status) << status.error().to_string();
    const auto got = from_tar.describe();
    EXPECT_EQ(got.size(), expected.size());
    for (const auto& [path, line] : expected) {
      ASSERT_TRUE(got.contains(path)) << quoted(path);
      EXPECT_EQ(got.at(path), line) << quoted(path);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Filesystems, TarDirectoryTest,
                         ::testing::Values(std::string("/var/tmp"), std::string("/dev/shm")));

TEST(DirectoryAsAnotherUserTest, AnUnreadableFileOrDirectoryIsAnErrorThatNamesIt) {
  for (const bool is_directory : {false, true}) {
    const TempDir dir = TempDir::create("varve-unreadable-", "/var/tmp").value();
    ASSERT_SYSCALL(::chmod(dir.path().c_str(), 0755));
    const std::string secret = dir.path() + "/secret";
    if (is_directory) {
      ASSERT_SYSCALL(::mkdir(secret.c_str(), 0700));
    } else {
      const UniqueFd fd = open_file(secret, O_WRONLY | O_CREAT, 0600).value();
      ASSERT_TRUE(write_all(fd.get(), as_bytes("secret")));
    }
    const pid_t child = ::fork();
    if (child == 0) {
      if (::setgid(65534) != 0 || ::setuid(65534) != 0) ::_exit(3);
      EntryCollector collector;
      const Status status = open_directory_source(dir.path(), {}).value()->read_into(collector);
      if (status || status.error().code() != ErrorCode::kPermission) ::_exit(1);
      ::_exit(status.error().to_string().find("secret") == std::string::npos ? 2 : 0);
    }
    int result = -1;
    ASSERT_EQ(::waitpid(child, &result, 0), child);
    EXPECT_EQ(result, 0) << (is_directory ? "directory" : "file");
  }
}

}  // namespace
}  // namespace varve::chunkstore

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  if (::geteuid() != 0) {
    std::puts("skipped: needs root (devices, trusted xattrs, foreign owners)");
    return varve::chunkstore::kSkipped;
  }
  return RUN_ALL_TESTS();
}
