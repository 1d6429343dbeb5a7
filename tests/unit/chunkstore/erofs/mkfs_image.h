#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include "base/file_io.h"
#include "base/temp_dir.h"

namespace varve::chunkstore::erofs {

/// A scratch directory with a tree to fill and images of it made by erofs-utils, which the reader
/// is checked against.
class MkfsImage {
 public:
  MkfsImage() : dir_(std::move(*TempDir::create("varve-erofs-test"))) {
    EXPECT_TRUE(make_directories(tree()));
  }
  std::string tree() const { return dir_.path() + "/tree"; }
  std::string path(const std::string& name) const { return tree() + "/" + name; }
  void write(const std::string& name, const std::string& content) const {
    std::ofstream(path(name), std::ios::binary) << content;
  }
  /// Makes the image and returns its bytes.
  Bytes make(const std::string& options = "") const {
    const std::string image = dir_.path() + "/image";
    const std::string command =
        "mkfs.erofs -T1000000007 --quiet " + options + " " + image + " " + tree() + " >/dev/null";
    EXPECT_EQ(std::system(command.c_str()), 0) << command;
    auto bytes = read_file(image, 1 << 30);
    EXPECT_TRUE(bytes.has_value());
    return bytes ? std::move(*bytes) : Bytes();
  }

 private:
  TempDir dir_;
};

}  // namespace varve::chunkstore::erofs
