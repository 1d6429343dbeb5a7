// varvefs as an ordinary user: mounted and unmounted by fusermount3.
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>

#include "base/check.h"
#include "base/file_io.h"
#include "fs/fuse/mount_point.h"
#include "tests/kernel/fs/fs_test.h"

namespace varve::test {
namespace {

constexpr uid_t kNobody = 65534;

void become_nobody() {
  const gid_t group = kNobody;
  VARVE_CHECK(setgroups(1, &group) == 0 && setresgid(kNobody, kNobody, kNobody) == 0 &&
              setresuid(kNobody, kNobody, kNobody) == 0);
}

/// What `body` returns in a process of that user: others may not look into such a mount at all.
int as_nobody(const std::function<int()>& body) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    become_nobody();
    _exit(body());
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/// Containers keep /dev/fuse to root; distributions let everybody open it. Where it is not so, in a
/// mount namespace of this program alone.
void let_everybody_open_fuse() {
  struct stat device;
  VARVE_CHECK(stat("/dev/fuse", &device) == 0);
  if ((device.st_mode & 0666) == 0666) return;
  const TempDir directory = TempDir::create("varve-fuse-", "/var/tmp").value();
  const std::string node = directory.path() + "/fuse";
  VARVE_CHECK(unshare(CLONE_NEWNS) == 0 &&
              mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
              mount("tmpfs", directory.path().c_str(), "tmpfs", 0, nullptr) == 0 &&
              mknod(node.c_str(), S_IFCHR | 0666, device.st_rdev) == 0 &&
              chmod(node.c_str(), 0666) == 0 &&
              mount(node.c_str(), "/dev/fuse", nullptr, MS_BIND, nullptr) == 0 &&
              umount2(directory.path().c_str(), MNT_DETACH) == 0);
}

class FsUnprivilegedTest : public FsStoreTest {
 protected:
  void SetUp() override {
    source_ = varvefs_.scratch() + "/source";
    std::filesystem::create_directories(source_ + "/directory/below");
    std::ofstream(source_ + "/small") << "content\n";
    std::filesystem::create_symlink("small", source_ + "/link");
    const Bytes noise = make_noise(3 << 20, 5);
    must(write_file_atomic(source_ + "/directory/large", noise, 0644));
    const TestLayer layer = put_directory(varvefs_.store(), source_);
    put_image(varvefs_.store(), {layer.id}, "app:v1");
    // All that this varvefs writes is the user's.
    ASSERT_EQ(chmod(varvefs_.scratch().c_str(), 0755), 0);
    const std::string home = varvefs_.scratch() + "/home";
    ASSERT_EQ(mkdir(home.c_str(), 0700), 0);
    ASSERT_EQ(chown(home.c_str(), kNobody, kNobody), 0);
    varvefs_.options().run_directory = home + "/run";
    varvefs_.options().spool_directory = home;
    varvefs_.set_child_setup(become_nobody);
  }
  void TearDown() override {
    if (varvefs_.is_running()) {
      EXPECT_EQ(varvefs_.stop(), 0) << varvefs_.log();
    }
    EXPECT_FALSE(fs::find_mount(varvefs_.mountpoint()));
  }

  std::string source_;
};

TEST_P(FsUnprivilegedTest, ItsUserSeesTheTreeAndNobodyElseDoes) {
  varvefs_.start();
  ControlClient client = varvefs_.connect();
  const auto answer = varvefs_.attach(client, "app:v1");
  const std::string tree = VarvefsProcess::tree_of(answer);
  EXPECT_EQ(as_nobody([&] {
              const auto differences = compare_trees(source_, tree);
              for (const std::string& line : differences)
                std::fprintf(stderr, "%s\n", line.c_str());
              return differences.empty() ? 0 : 1;
            }),
            0);
  EXPECT_EQ(
      as_nobody([&] { return open(tree.c_str(), O_WRONLY | O_TMPFILE, 0600) < 0 ? errno : 0; }),
      EROFS);
  struct stat status;
  EXPECT_NE(stat(tree.c_str(), &status), 0) << "root may not see it: no allow_other";
  EXPECT_EQ(errno, EACCES);
  EXPECT_EQ(varvefs_.log().find("warning"), std::string::npos) << varvefs_.log();
}

TEST_P(FsUnprivilegedTest, KernelMountsAreRefusedWithTheReason) {
  varvefs_.start();
  ControlClient client = varvefs_.connect();
  const auto answer = client.post("/v1/attach", {{"store", "file://" + varvefs_.store_directory()},
                                                 {"image", "app:v1"},
                                                 {"domain", "default"},
                                                 {"mounts", true}});
  ASSERT_TRUE(answer);
  EXPECT_NE(answer->status, 200);
  EXPECT_NE(boost::json::serialize(answer->body).find("need varvefs to run as root"),
            std::string::npos);
}

TEST_P(FsUnprivilegedTest, WhatAKilledOneLeftIsUnmountedByTheNext) {
  varvefs_.start();
  varvefs_.kill();
  ASSERT_TRUE(fs::find_mount(varvefs_.mountpoint()));
  varvefs_.start();
  ControlClient client = varvefs_.connect();
  const std::string tree = VarvefsProcess::tree_of(varvefs_.attach(client, "app:v1"));
  EXPECT_EQ(as_nobody([&] { return access((tree + "/small").c_str(), R_OK) == 0 ? 0 : errno; }), 0);
}

TEST_P(FsUnprivilegedTest, EndsByItselfWhenItsLingerTimeIsOver) {
  varvefs_.options().linger_s = 0;
  EXPECT_EQ(varvefs_.start_and_wait(), 0) << varvefs_.log();
}

TEST_P(FsUnprivilegedTest, UnmountsWhereverItsRunDirectoryWasMovedTo) {
  const std::string elsewhere = varvefs_.scratch() + "/home/elsewhere";
  varvefs_.options().linger_s = 0;
  varvefs_.start();
  {
    ControlClient keeps_it_alive = varvefs_.connect();
    ASSERT_TRUE(keeps_it_alive.get("/v1/status"));
    std::filesystem::rename(varvefs_.options().run_directory, elsewhere);
  }
  EXPECT_EQ(varvefs_.wait(), 0) << varvefs_.log();
  EXPECT_FALSE(fs::find_mount(elsewhere + "/mnt"));
}

TEST_P(FsUnprivilegedTest, DoesNotEndWhileItIsInUse) {
  varvefs_.options().linger_s = 0;
  varvefs_.start();
  std::string tree;
  int ends[2];
  int told[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  ASSERT_EQ(pipe2(told, O_CLOEXEC), 0);
  pid_t user;
  {
    ControlClient client = varvefs_.connect();
    tree = VarvefsProcess::tree_of(varvefs_.attach(client, "app:v1"));
    user = fork();
    if (user == 0) {
      close(ends[1]);
      become_nobody();
      const int file = open((tree + "/directory/large").c_str(), O_RDONLY);
      char byte = file >= 0 ? 'y' : 'n';
      const bool was_told = write(told[1], &byte, 1) == 1 && read(ends[0], &byte, 1) == 0;
      _exit(was_told && pread(file, &byte, 1, 1 << 20) == 1 ? 0 : 1);
    }
    char byte = 0;
    ASSERT_EQ(read(told[0], &byte, 1), 1);
    ASSERT_EQ(byte, 'y');
  }
  // Longer than it looks around.
  std::this_thread::sleep_for(std::chrono::milliseconds(2500));
  EXPECT_TRUE(fs::find_mount(varvefs_.mountpoint()));
  close(ends[1]);
  int status = -1;
  waitpid(user, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(varvefs_.wait(), 0) << varvefs_.log();
  for (const int fd : {ends[0], told[0], told[1]}) close(fd);
}

TEST_P(FsUnprivilegedTest, WithoutFusermountItSaysWhatIsMissing) {
  varvefs_.set_child_setup([] {
    become_nobody();
    setenv("PATH", "/nonexistent", 1);
  });
  EXPECT_NE(varvefs_.start_and_wait(), 0);
  EXPECT_NE(varvefs_.log().find("fusermount3"), std::string::npos) << varvefs_.log();
}

TEST_P(FsUnprivilegedTest, AMountPointOfSomebodyElseIsRefused) {
  const std::string other = varvefs_.scratch() + "/other";
  ASSERT_EQ(mkdir(other.c_str(), 0755), 0);
  varvefs_.options().mountpoint = other;
  EXPECT_EQ(varvefs_.start_and_wait(), error_code_to_exit_status(ErrorCode::kPermission));
  EXPECT_NE(varvefs_.log().find("no write access to mountpoint"), std::string::npos)
      << varvefs_.log();
  EXPECT_FALSE(fs::find_mount(other));
}

VARVE_FS_TEST_SUITE(FsUnprivilegedTest);

}  // namespace
}  // namespace varve::test

int main(int argc, char** argv) {
  varve::test::skip_without_fuse();
  if (std::system("command -v fusermount3 > /dev/null") != 0) {
    std::printf("SKIP: fusermount: fusermount3 is not installed\n");
    return 77;
  }
  varve::test::let_everybody_open_fuse();
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
