#include "fs/view/attributes.h"

#include <dirent.h>
#include <sys/stat.h>

#include <cstring>
#include <limits>

#include "base/check.h"

namespace varve::fs {
namespace {

constexpr uint32_t kBlockBytes = 4096;
// The kernel clamps it; seconds beyond what jiffies can count mean "for ever".
constexpr uint64_t kForEver_s = std::numeric_limits<uint32_t>::max();

uint64_t sectors(uint64_t bytes) {
  return (bytes + 511) / 512;
}

}  // namespace

fuse::Attr tree_attributes(uint64_t node_id, const chunkstore::erofs::Inode& inode) {
  fuse::Attr attributes{};
  attributes.ino = node_id;
  attributes.size = inode.size;
  attributes.blocks = sectors(inode.size);
  attributes.atime = attributes.mtime = attributes.ctime = inode.mtime_s;
  attributes.atime_ns = attributes.mtime_ns = attributes.ctime_ns = inode.mtime_ns;
  attributes.mode = inode.mode;
  attributes.nlink = inode.nlink;
  attributes.uid = inode.uid;
  attributes.gid = inode.gid;
  attributes.rdev = inode.rdev;
  attributes.block_size = kBlockBytes;
  return attributes;
}

fuse::Attr synthetic_directory_attributes(uint64_t node_id, uint32_t link_count, int64_t time_s) {
  fuse::Attr attributes{};
  attributes.ino = node_id;
  attributes.atime = attributes.mtime = attributes.ctime = time_s;
  attributes.mode = S_IFDIR | 0555;
  attributes.nlink = link_count;
  attributes.block_size = kBlockBytes;
  return attributes;
}

fuse::Attr image_attributes(uint64_t node_id, uint64_t image_bytes, int64_t time_s) {
  fuse::Attr attributes{};
  attributes.ino = node_id;
  attributes.size = image_bytes;
  attributes.blocks = sectors(image_bytes);
  attributes.atime = attributes.mtime = attributes.ctime = time_s;
  attributes.mode = S_IFREG | 0444;
  attributes.nlink = 1;
  attributes.block_size = kBlockBytes;
  return attributes;
}

fuse::EntryOut permanent_entry(const fuse::Attr& attributes) {
  fuse::EntryOut entry{};
  entry.node_id = attributes.ino;
  entry.generation = 1;
  entry.entry_valid_s = kForEver_s;
  entry.attr_valid_s = kForEver_s;
  entry.attr = attributes;
  return entry;
}

fuse::AttrOut permanent_attributes(const fuse::Attr& attributes) {
  fuse::AttrOut out{};
  out.attr_valid_s = kForEver_s;
  out.attr = attributes;
  return out;
}

uint32_t directory_entry_type(uint8_t erofs_file_type) {
  constexpr uint32_t kTypes[] = {DT_UNKNOWN, DT_REG,  DT_DIR,  DT_CHR,
                                 DT_BLK,     DT_FIFO, DT_SOCK, DT_LNK};
  return erofs_file_type < std::size(kTypes) ? kTypes[erofs_file_type] : uint32_t{DT_UNKNOWN};
}

size_t DirectoryWriter::entry_bytes(std::string_view name) const {
  const size_t fixed = with_attributes_ ? sizeof(fuse::DirentPlus) : sizeof(fuse::Dirent);
  return align_up(fixed + name.size(), 8);
}

bool DirectoryWriter::fits(std::string_view name) const {
  return entry_bytes(name) <= to_.size() - size_;
}

void DirectoryWriter::add(std::string_view name, uint64_t ino, uint32_t type, uint64_t next_offset,
                          const fuse::EntryOut& entry) {
  VARVE_CHECK(fits(name));
  const size_t bytes = entry_bytes(name);
  uint8_t* to = to_.data() + size_;
  std::memset(to, 0, bytes);
  if (with_attributes_) {
    std::memcpy(to, &entry, sizeof(entry));
    to += sizeof(entry);
  }
  const fuse::Dirent dirent{ino, next_offset, static_cast<uint32_t>(name.size()), type};
  std::memcpy(to, &dirent, sizeof(dirent));
  std::memcpy(to + sizeof(dirent), name.data(), name.size());
  size_ += bytes;
}

}  // namespace varve::fs
