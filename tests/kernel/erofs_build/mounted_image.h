#pragma once

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "base/file_io.h"
#include "base/temp_dir.h"

namespace varve::chunkstore {

/// An image in a file, mounted by the kernel in this process's own mount namespace until the
/// object goes. Without a loop device: file-backed.
class MountedImage {
 public:
  explicit MountedImage(ByteView image)
      : dir_(std::move(*TempDir::create("varve-erofs-kernel", "/var/tmp"))) {
    const auto file = open_file(file_path(), O_RDWR | O_CREAT);
    EXPECT_TRUE(file.has_value());
    EXPECT_TRUE(pwrite_all(file->get(), 0, image));
    EXPECT_TRUE(make_directories(path()));
  }
  ~MountedImage() {
    if (is_mounted_) umount2(path().c_str(), MNT_DETACH);
  }

  /// False when this machine cannot; the reason is printed.
  bool mount() {
    if (geteuid() != 0) {
      std::printf("SKIP: root: mounting needs it\n");
      return false;
    }
    if (unshare(CLONE_NEWNS) != 0 ||
        ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) {
      ADD_FAILURE() << "cannot make a mount namespace";
      return false;
    }
    if (::mount(file_path().c_str(), path().c_str(), "erofs", MS_RDONLY, nullptr) != 0) {
      if (errno == ENOTBLK || errno == ENODEV) {
        std::printf("SKIP: erofs-file: mounting without a loop device needs it\n");
      } else {
        ADD_FAILURE() << "the kernel refuses the image: " << strerror(errno);
      }
      return false;
    }
    is_mounted_ = true;
    return true;
  }

  /// What fsck.erofs says: "" when it finds no fault.
  std::string fsck() const {
    const std::string log = dir_.path() + "/fsck.log";
    const std::string command = "fsck.erofs " + file_path() + " > " + log + " 2>&1";
    if (std::system(command.c_str()) == 0) return "";
    const auto text = read_file(log, 1 << 20);
    return text ? "fsck.erofs: " + std::string(as_text(*text)) : "fsck.erofs did not run";
  }

  std::string path() const { return dir_.path() + "/mnt"; }
  std::string file_path() const { return dir_.path() + "/image"; }

 private:
  TempDir dir_;
  bool is_mounted_ = false;
};

}  // namespace varve::chunkstore
