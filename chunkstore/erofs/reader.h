#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "chunkstore/erofs/format.h"
#include "chunkstore/erofs/image_source.h"

namespace varve::chunkstore::erofs {

/// One inode, decoded and checked. Value type.
struct Inode {
  uint64_t nid = 0;   ///< Also what stat(2) shows as st_ino on a kernel mount.
  uint32_t ino = 0;   ///< The number stored in the inode; the kernel ignores it.
  uint32_t mode = 0;  ///< Type and permission bits; the type is one of the seven.
  uint32_t uid = 0;
  uint32_t gid = 0;
  uint32_t nlink = 0;
  uint64_t size = 0;  ///< Bytes, < 2^63.
  int64_t mtime_s = 0;
  uint32_t mtime_ns = 0;  ///< < 10^9.
  uint32_t rdev = 0;      ///< Linux's new_encode_dev form, devices only.
  Layout layout = Layout::kFlatPlain;
  uint32_t layout_word = 0;  ///< First data block, or the chunk format.
  uint32_t xattr_size = 0;   ///< Bytes of the inline xattr body.
  uint64_t body_offset = 0;  ///< Image offset of what follows the inode proper.
};

struct Dirent {
  std::string name;
  uint64_t nid = 0;
  uint8_t type = 0;  ///< FileType's values.
};

/// A run of a file: bytes [file_offset, file_offset + size) lie at image_offset, or are a hole.
struct Extent {
  uint64_t file_offset = 0;
  uint64_t size = 0;
  std::optional<uint64_t> image_offset;
};

/// Reads uncompressed EROFS images, trusting nothing in them: every offset, count and length is
/// checked before it is used, work is bounded by the image's size, nothing recurses on input.
/// Does not check that a tree has no cycles: callers that walk bound their depth and entry count.
/// Thread-safe (immutable after open). Errors: kCorruption with nid and offset; kUnsupported for
/// features it does not know; what the source reports.
/// Source: Linux Documentation/filesystems/erofs.rst and fs/erofs/erofs_fs.h.
class Reader {
 public:
  /// Reads the superblock and, where there is one, the table of long xattr prefixes.
  /// `source` must outlive the reader.
  static Result<Reader> open(ImageSource& source);

  uint64_t root_nid() const { return root_nid_; }
  /// As the superblock claims; not to be trusted as a size.
  uint64_t inode_count() const { return inode_count_; }
  ImageSource& source() const { return *source_; }

  Result<Inode> inode(uint64_t nid) const;
  /// Calls `visit` for the entries from `cookie` on (0 = the first, in stored order, `.` and `..`
  /// included), each with the cookie of the entry after it; stops early when it returns false.
  Status read_directory(
      const Inode& directory, uint64_t cookie,
      const std::function<bool(const Dirent&, uint64_t next_cookie)>& visit) const;
  /// Binary search; nothing when the name is absent.
  Result<std::optional<Dirent>> lookup(const Inode& directory, std::string_view name) const;
  Result<std::string> read_link(const Inode& link) const;
  /// Full names → values. The first of equal names wins, as getxattr(2) would find it.
  Result<std::map<std::string, std::string>> xattrs(const Inode& inode) const;
  /// The extents of [offset, offset + size) in order, clipped to the file; neighbours merged.
  /// Every extent with an image_offset lies inside the image.
  Result<std::vector<Extent>> extents(const Inode& file, uint64_t offset, uint64_t size) const;
  /// Fills the front of `to`; fewer bytes only at the end of the file.
  Result<size_t> read(const Inode& file, uint64_t offset, MutableByteView to) const;
  /// Follows `path` from the root, without following symlinks. kNotFound names the component.
  Result<Inode> walk(std::string_view path) const;

 private:
  struct LongPrefix {
    uint8_t base_index = 0;
    std::string infix;
  };
  struct ChunkMap {
    uint64_t chunk_bytes = 0;
    uint64_t map_offset = 0;
    uint32_t entry_bytes = 0;
  };
  /// The dirents of one directory block.
  struct Block {
    Bytes bytes;
    uint32_t entry_count = 0;
    uint32_t name_offset(uint32_t index) const;
    std::string_view name(uint32_t index) const;
    Dirent dirent(uint32_t index) const;
  };

  explicit Reader(ImageSource& source) : source_(&source) {}

  Status load_super_block();
  Status load_xattr_prefixes(uint64_t offset, uint32_t count);
  Status check_super_block(const SuperBlock& super) const;
  /// Fails with kCorruption when [offset, offset + size) is not inside the image.
  Status check_range(uint64_t offset, uint64_t size, uint64_t nid, const char* what) const;
  Result<Block> read_block(const Inode& directory, uint64_t block_index) const;
  Result<ChunkMap> chunk_map(const Inode& file) const;
  Status append_chunk_extents(const Inode& file, uint64_t offset, uint64_t end,
                              std::vector<Extent>& extents) const;
  Result<std::string> xattr_name(const Inode& inode, uint8_t name_index,
                                 std::string_view suffix) const;
  Status add_shared_xattr(const Inode& inode, uint32_t id,
                          std::map<std::string, std::string>& xattrs) const;

  ImageSource* source_;
  uint64_t root_nid_ = 0;
  uint64_t inode_count_ = 0;
  uint64_t meta_offset_ = 0;
  uint64_t xattr_offset_ = 0;
  int64_t build_time_s_ = 0;
  uint32_t build_time_ns_ = 0;
  std::vector<LongPrefix> long_prefixes_;
};

}  // namespace varve::chunkstore::erofs
