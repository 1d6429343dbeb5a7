// Reads everything of an arbitrary image: inodes, directories, links, xattrs, content.

#include <sys/stat.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "chunkstore/erofs/reader.h"

namespace {

using varve::MutableByteView;
using varve::Status;
using varve::chunkstore::erofs::Dirent;
using varve::chunkstore::erofs::ImageSource;
using varve::chunkstore::erofs::Inode;
using varve::chunkstore::erofs::Reader;

class FuzzImage final : public ImageSource {
 public:
  FuzzImage(const uint8_t* data, size_t size) : data_(data), size_(size) {}
  uint64_t size() const override { return size_; }
  Status read(uint64_t offset, MutableByteView to) override {
    // The reader must have checked this: reading outside is a finding.
    if (offset > size_ || to.size() > size_ - offset) __builtin_trap();
    std::copy_n(data_ + offset, to.size(), to.begin());
    return {};
  }

 private:
  const uint8_t* data_;
  size_t size_;
};

// Enough for seeds to be walked whole; trees of hostile images may have loops.
constexpr size_t kInodeCountMax = 200;
constexpr size_t kEntryCountMax = 2000;

void read_content(const Reader& reader, const Inode& inode) {
  varve::Bytes buffer(9000);
  for (const uint64_t offset : {uint64_t{0}, uint64_t{4095}, inode.size / 2, inode.size - 1}) {
    const auto size = reader.read(inode, offset, buffer);
    if (size && *size > buffer.size()) __builtin_trap();
    const auto extents = reader.extents(inode, offset, 1 << 20);
    if (!extents) continue;
    for (const auto& extent : *extents) {
      if (extent.image_offset && (*extent.image_offset > reader.source().size() ||
                                  extent.size > reader.source().size() - *extent.image_offset))
        __builtin_trap();
    }
  }
}

void read_inode(const Reader& reader, uint64_t nid, std::vector<uint64_t>& found) {
  const auto inode = reader.inode(nid);
  if (!inode) return;
  (void)reader.xattrs(*inode);
  if (S_ISLNK(inode->mode)) {
    (void)reader.read_link(*inode);
  } else if (S_ISREG(inode->mode)) {
    read_content(reader, *inode);
  } else if (S_ISDIR(inode->mode)) {
    size_t count = 0;
    std::string last_name;
    (void)reader.read_directory(*inode, 0, [&](const Dirent& entry, uint64_t) {
      found.push_back(entry.nid);
      last_name = entry.name;
      return ++count < kEntryCountMax;
    });
    (void)reader.lookup(*inode, last_name);
    (void)reader.lookup(*inode, "absent");
    (void)reader.read_directory(*inode, 4096 + 13, [](const Dirent&, uint64_t) { return false; });
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  FuzzImage image(data, size);
  const auto reader = Reader::open(image);
  if (!reader) return 0;
  std::vector<uint64_t> nids = {reader->root_nid()};
  for (size_t i = 0; i < nids.size() && i < kInodeCountMax; ++i) read_inode(*reader, nids[i], nids);
  (void)reader->walk("usr/bin/tool");
  return 0;
}
