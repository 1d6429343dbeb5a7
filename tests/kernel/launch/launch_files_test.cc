// The root filesystem: layers, ids, written files.
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

#include "base/file_io.h"
#include "launch_fixture.h"

namespace varve::launcher {
namespace {

class LaunchFilesTest : public LaunchTest {
 protected:
  static std::string tree(const std::string& name) { return directory() + "/" + name; }
  static void put(const std::string& path, const std::string& text) {
    ASSERT_TRUE(make_directories(path.substr(0, path.rfind('/'))));
    ASSERT_TRUE(write_file_atomic(path, as_bytes(text)));
  }
};

TEST_F(LaunchFilesTest, LargeIdsCanBeReadWrittenAndDeleted) {
  const std::string root = tree("ids");
  for (const uint32_t id : {70000u, 4294967294u}) {
    const std::string name = root + "/d" + std::to_string(id);
    put(name + "/f", "content\n");
    ASSERT_EQ(::chown((name + "/f").c_str(), id, id), 0);
    ASSERT_EQ(::chown(name.c_str(), id, id), 0);
    ASSERT_EQ(::chmod((name + "/f").c_str(), 0600), 0);
  }
  make_image("ids", root);
  ASSERT_TRUE(
      write_file_atomic(directory() + "/images/base+ids.ids", as_bytes("[70000, 4294967294]")));
  for (const char* id : {"70000", "4294967294"}) {
    const std::string d = std::string("/d") + id;
    const Result result =
        sh("set -e; stat -c %u:%g " + d + "/f; cat " + d + "/f; echo more >>" + d +
               "/f; chmod 640 " + d + "/f; cat " + d + "/f; cp -p " + d + "/f " + d + "/g; chown " +
               id + ":" + id + " " + d + "/g; stat -c %u:%g:%a " + d + "/g; rm " + d + "/f " + d +
               "/g; rmdir " + d + "; [ ! -e " + d + " ]",
           {}, "base+ids");
    EXPECT_EQ(result.status, 0) << id << ": " << result.err;
    const std::string owner = std::string(id) + ":" + id;
    EXPECT_EQ(result.out, owner + "\ncontent\ncontent\nmore\n" + owner + ":640\n");
    // The owner itself, and nobody else but root.
    EXPECT_EQ(sh("cat " + d + "/f", {"--user", id}, "base+ids").out, "content\n");
    EXPECT_NE(sh("cat " + d + "/f", {"--user", "me"}, "base+ids").status, 0);
  }
}

TEST_F(LaunchFilesTest, LayersBelowAnOpaqueRootAreNotSeen) {
  const std::string hidden = tree("hidden");
  put(hidden + "/secret", "x");
  make_image("hidden", hidden);
  const std::string opaque = tree("opaque");
  ASSERT_EQ(execute({"cp", "-a", tree("base"), opaque}).status, 0);
  put(opaque + "/shown", "x");
  ASSERT_EQ(::setxattr(opaque.c_str(), "trusted.overlay.opaque", "y", 1, 0), 0);
  make_image("opaque", opaque);
  const std::string top = tree("top");
  put(top + "/top", "x");
  make_image("top", top);
  const Result result = sh("ls -d /secret /shown /top", {}, "hidden+opaque+top");
  EXPECT_EQ(result.out, "/shown\n/top\n") << result.err;
  // As the lowest it hides nothing.
  EXPECT_EQ(sh("ls -d /secret /shown", {}, "opaque+hidden").out, "/secret\n/shown\n");

  const std::string at = directory() + "/at-opaque";
  ASSERT_TRUE(make_directories(at));
  EXPECT_EQ(execute({varve_program(), "mount", "--run-dir", run_dir(), "hidden+opaque", at}).status,
            0);
  EXPECT_EQ(::access((at + "/shown").c_str(), F_OK), 0);
  EXPECT_NE(::access((at + "/secret").c_str(), F_OK), 0);
  EXPECT_EQ(execute({varve_program(), "umount", "--run-dir", run_dir(), at}).status, 0);
}

TEST_F(LaunchFilesTest, AnImageWithTooManyLargeIdsIsRefusedAndNamesOne) {
  std::string ids = "[";
  for (int i = 0; i < 301; ++i) ids += (i == 0 ? "" : ",") + std::to_string(100000 + i);
  ASSERT_TRUE(write_file_atomic(directory() + "/images/base+base+base.ids", as_bytes(ids + "]")));
  const Result result = sh("true", {}, "base+base+base");
  EXPECT_EQ(result.status, 125);
  EXPECT_NE(result.err.find("no place for id 100300"), std::string::npos) << result.err;
}

TEST_F(LaunchFilesTest, WhiteoutsAndOpaqueDirectoriesHideWhatIsBelow) {
  put(tree("l1") + "/d/old", "1");
  put(tree("l1") + "/gone", "1");
  put(tree("l1") + "/e/hidden", "1");
  put(tree("l2") + "/d/middle", "2");
  ASSERT_EQ(::setxattr((tree("l2") + "/d").c_str(), "trusted.overlay.opaque", "y", 1, 0), 0);
  ASSERT_EQ(::mknod((tree("l2") + "/gone").c_str(), S_IFCHR, makedev(0, 0)), 0);
  ASSERT_EQ(::mknod((tree("l2") + "/e").c_str(), S_IFCHR, makedev(0, 0)), 0);
  put(tree("l3") + "/d/new", "3");
  put(tree("l3") + "/e/again", "3");
  for (const char* name : {"l1", "l2", "l3"}) make_image(name, tree(name));
  const Result result = sh("ls /d /e; [ ! -e /gone ]; cat /d/new /d/middle", {}, "base+l1+l2+l3");
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.out, "/d:\nmiddle\nnew\n\n/e:\nagain\n32");
}

TEST_F(LaunchFilesTest, OwnersAreTheImagesOwnInsideAndOnDisk) {
  const Result result =
      sh("stat -c %u:%g /home/me /etc/passwd /; touch /home/me/f; chown me /home/me/f; mkdir /new",
         {"--keep"});
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.out, "1000:1000\n0:0\n0:0\n");
  const std::string prefix = "varve: written files are in ";
  ASSERT_TRUE(result.err.starts_with(prefix)) << result.err;
  const std::string upper = result.err.substr(prefix.size(), result.err.size() - prefix.size() - 1);
  struct stat status;
  ASSERT_EQ(::stat((upper + "/home/me/f").c_str(), &status), 0);
  EXPECT_EQ(status.st_uid, 1000u);
  ASSERT_EQ(::stat((upper + "/new").c_str(), &status), 0);
  EXPECT_EQ(status.st_uid, 0u) << "a kept upper needs no chown";
  EXPECT_EQ(execute({"rm", "-r", upper.substr(0, upper.rfind('/'))}).status, 0);
}

TEST_F(LaunchFilesTest, KeptFilesStayWhenTheRunFailsAfterItsCommand) {
  const Result result = sh("echo new >/etc/new", {"--keep", "--stats", "/dev/full"});
  EXPECT_EQ(result.status, 125);
  EXPECT_NE(result.err.find("No space left"), std::string::npos) << result.err;
  const std::string prefix = "varve: written files are in ";
  ASSERT_TRUE(result.err.starts_with(prefix)) << result.err;
  const std::string upper = result.err.substr(prefix.size(), result.err.find('\n') - prefix.size());
  struct stat status;
  EXPECT_EQ(::stat((upper + "/etc/new").c_str(), &status), 0);
  EXPECT_EQ(execute({"rm", "-r", upper.substr(0, upper.rfind('/'))}).status, 0);
}

TEST_F(LaunchFilesTest, WrittenFilesAreGoneAfterwards) {
  EXPECT_EQ(sh("echo x >/etc/new; rm /etc/passwd; mkdir -p /a/b/c; ls /etc").out,
            "group\nnew\nshadow\n");
  EXPECT_EQ(sh("ls /etc; [ ! -e /a ]").out, "group\npasswd\nshadow\n");
}

TEST_F(LaunchFilesTest, FilesInMemoryHaveTheirSize) {
  const Result result =
      sh("dd if=/dev/zero of=/big bs=64k count=64 2>/dev/null || wc -c </big", {"--rw-size", "1M"});
  EXPECT_EQ(result.status, 0);
  EXPECT_LE(std::stoul(result.out), 1u << 20);
  EXPECT_EQ(sh("echo small >/f; cat /f", {"--rw-size", "1M"}).out, "small\n");
}

TEST_F(LaunchFilesTest, FileCapabilitiesAndHardLinksAndXattrsSurviveCopyUp) {
  const Result result =
      sh("set -e; cp /bin/busybox /tmp/a; ln /tmp/a /tmp/b; stat -c %h /tmp/a; mv /home/me/../me "
         "/home/you; ls /home; "
         "mv /etc/passwd /etc/moved; cat /etc/moved | head -1");
  // A directory of a lower layer cannot be renamed without redirects; mv copies it instead.
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.out, "2\nyou\nroot:x:0:0:root:/root:/bin/sh\n");
}

TEST_F(LaunchFilesTest, MountPointsThatTheImageLacksAreMade) {
  put(tree("bare") + "/file", "x");
  ASSERT_EQ(execute({"cp", "/bin/busybox", tree("bare") + "/"}).status, 0);
  make_image("bare", tree("bare"));
  const Result result = run({"bare", "--", "/busybox", "ls", "/"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.out, "busybox\ndev\nfile\nproc\nsys\n");
}

TEST_F(LaunchFilesTest, MountPointsThatAreLinksAreRefused) {
  for (const char* name : {"proc", "sys", "dev"}) {
    const std::string image = std::string("hostile-") + name;
    put(tree(image) + "/file", "x");
    ASSERT_EQ(::symlink("/etc", (tree(image) + "/" + name).c_str()), 0);
    make_image(image, tree(image));
    const Result result = run({image, "--", "/busybox"});
    EXPECT_EQ(result.status, 125);
    EXPECT_NE(result.err.find("mounting inside the image, at '" + std::string(name) + "'"),
              std::string::npos)
        << result.err;
  }
}

TEST_F(LaunchFilesTest, DevicesOfTheImageCannotBeOpened) {
  put(tree("devices") + "/d/x", "");
  // The very ones that /dev has, so that only where they lie can make the difference.
  ASSERT_EQ(::mknod((tree("devices") + "/d/null").c_str(), S_IFCHR | 0666, makedev(1, 3)), 0);
  ASSERT_EQ(::mknod((tree("devices") + "/d/loop").c_str(), S_IFBLK | 0666, makedev(7, 0)), 0);
  make_image("devices", tree("devices"));
  const Result result =
      sh("ls /d; cat </dev/null || echo none; for f in null loop; do cat /d/$f 2>/dev/null && echo "
         "opened; echo x 2>/dev/null >/d/$f && echo opened; done; mv /d/null /d/n && cat /d/n 2>&1",
         {}, "base+devices");
  EXPECT_EQ(result.out, "loop\nnull\nx\ncat: can't open '/d/n': Permission denied\n") << result.err;
}

TEST_F(LaunchFilesTest, AHostileUserDatabaseStaysInsideTheImage) {
  put(tree("links") + "/x", "");
  ASSERT_TRUE(make_directories(tree("links") + "/etc"));
  ASSERT_EQ(::symlink("../../../../../../etc/passwd", (tree("links") + "/etc/passwd").c_str()), 0);
  make_image("links", tree("links"));
  EXPECT_EQ(run({"--user", "daemon", "links", "--", "/x"}).status, 125)
      << "daemon is a user of the host only";
}

TEST_F(LaunchFilesTest, AnUpperOnAnOverlayIsAClearError) {
  // In a mount namespace of its own: the overlay goes with the process.
  std::vector<std::string> words{
      "unshare",
      "--mount",
      "sh",
      "-c",
      "mkdir -p $0/o/l $0/o/u $0/o/w $0/o/m && mount -t overlay -o lowerdir=$0/o/l,upperdir=$0/o/u,"
      "workdir=$0/o/w none $0/o/m && exec \"$@\"",
      directory()};
  for (std::string word : command({"base", "true"})) {
    if (word == state_dir()) word = directory() + "/o/m/state";
    words.push_back(word);
  }
  const Result result = execute(words);
  EXPECT_EQ(result.status, 125);
  EXPECT_NE(result.err.find("is on an overlayfs"), std::string::npos) << result.err;
}

}  // namespace
}  // namespace varve::launcher
