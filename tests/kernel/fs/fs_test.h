#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <functional>

#include "base/file_io.h"
#include "tests/support/fs/varvefs_process.h"

namespace varve::test {

/// A store with one image, `app:v1`, of one layer that make_tree() made; shared by the tests of a
/// program, which must not change it.
class SharedImage {
 public:
  static const SharedImage& get() {
    static const SharedImage image;
    return image;
  }

  std::string source;
  std::string store_directory;
  TestLayer layer;

 private:
  SharedImage() {
    source = directory_.path() + "/source";
    store_directory = directory_.path() + "/store";
    make_tree(source, 1);
    const auto store = chunkstore::open_store(store_directory, true).value();
    layer = put_directory(*store, source, 16);
    put_image(*store, {layer.id}, "app:v1");
  }

  // A forked server runs static destructors, too; the directory is the test's.
  ~SharedImage() {
    if (getpid() != owner_) directory_.release();
  }

  const pid_t owner_ = getpid();
  TempDir directory_ = TempDir::create("varve-fs-image-", "/var/tmp").value();
};

/// A test that runs once for each transport of this machine, on the shared image.
class FsTest : public ::testing::TestWithParam<fs::TransportKind> {
 protected:
  const SharedImage& shared_ = SharedImage::get();
  VarvefsProcess varvefs_{GetParam(), shared_.store_directory};
};

/// The same with a store of its own, which the test may damage; empty at first.
class FsStoreTest : public ::testing::TestWithParam<fs::TransportKind> {
 protected:
  VarvefsProcess varvefs_{GetParam()};
};

constexpr uint64_t kPage = 4096;

/// A process that runs `body` and exits with what it returns; killed with the object.
class Child {
 public:
  explicit Child(const std::function<int()>& body) : pid_(fork()) {
    if (pid_ == 0) _exit(body());
  }
  ~Child() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      wait();
    }
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  pid_t pid() const { return pid_; }
  void kill() { ::kill(pid_, SIGKILL); }
  bool has_ended() const {
    siginfo_t info{};
    return waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
           info.si_pid != 0;
  }
  int wait() {
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

 private:
  pid_t pid_;
};

/// The errno of reading `size` bytes at `offset`, without the page cache of the reader's file; 0
/// when they were read.
inline int direct_read_errno(const std::string& path, uint64_t offset, uint64_t size = kPage,
                             Bytes* to = nullptr) {
  const auto fd = open_file(path, O_RDONLY | O_DIRECT);
  if (!fd) return fd.error().errno_value();
  void* buffer = aligned_alloc(kPage, align_up(size, kPage));
  const ssize_t count = pread(fd->get(), buffer, size, static_cast<off_t>(offset));
  const int error = count < 0 ? errno : 0;
  if (to != nullptr && count > 0) {
    to->assign(static_cast<uint8_t*>(buffer), static_cast<uint8_t*>(buffer) + count);
  }
  free(buffer);
  return error;
}

/// VmRSS of a process, KiB.
inline uint64_t resident_kb(pid_t pid) {
  const Bytes status = read_file("/proc/" + std::to_string(pid) + "/status", 64 << 10).value();
  const std::string_view text = as_text(status);
  return std::stoull(std::string(text.substr(text.find("VmRSS:") + 6, 32)));
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kIsSanitized = true;
#else
constexpr bool kIsSanitized = false;
#endif

/// Ends the program with "skipped" where FUSE cannot be used at all.
inline void skip_without_fuse() {
  if (geteuid() != 0 || access("/dev/fuse", R_OK | W_OK) != 0) {
    std::printf("skipped: needs root and /dev/fuse\n");
    std::exit(77);
  }
}

}  // namespace varve::test

/// Runs a suite of FsTest on every transport.
#define VARVE_FS_TEST_SUITE(suite)                                                                 \
  INSTANTIATE_TEST_SUITE_P(Transports, suite,                                                      \
                           ::testing::ValuesIn(::varve::test::available_transports()),             \
                           [](const ::testing::TestParamInfo<::varve::fs::TransportKind>& param) { \
                             return ::varve::test::transport_test_name(param.param);               \
                           })
