#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

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
