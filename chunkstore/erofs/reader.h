#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "chunkstore/erofs/image_source.h"

namespace varve::chunkstore::erofs {

/// One inode, decoded and checked. Value type.
struct Inode {
  uint64_t nid = 0;
  uint32_t ino = 0;     ///< What stat(2) shows.
  uint32_t mode = 0;    ///< Type and permission bits.
  uint32_t uid = 0;
  uint32_t gid = 0;
  uint32_t nlink = 0;
  uint64_t size = 0;    ///< Bytes.
  int64_t mtime_s = 0;
  uint32_t mtime_ns = 0;
  uint32_t rdev = 0;    ///< Linux's new_encode_dev form, devices only.
  uint8_t layout = 0;   ///< EROFS_INODE_*.
  uint32_t layout_word = 0;   ///< First data block, or the chunk format.
  uint32_t xattr_size = 0;    ///< Bytes of the inline xattr body.
  uint64_t body_offset = 0;   ///< Image offset of what follows the inode proper.
};

struct Dirent {
  std::string name;
  uint64_t nid = 0;
  uint8_t type = 0;  ///< EROFS_FT_*: 1 regular, 2 directory, 3 char, 4 block, 5 fifo, 6 socket, 7 link.
};

/// A run of a file: bytes [file_offset, file_offset + size) lie at image_offset, or are a hole.
struct Extent {
  uint64_t file_offset = 0;
  uint64_t size = 0;
  std::optional<uint64_t> image_offset;
};

/// Reads uncompressed EROFS images, trusting nothing in them: every offset, count and length is
/// checked before it is used, work is bounded by the image's size, nothing recurses on input.
/// Thread-safe (stateless after open). Errors: kCorruption with nid and offset; kUnsupported for
/// features it does not know.
/// Source: Linux Documentation/filesystems/erofs.rst and fs/erofs/erofs_fs.h.
class Reader {
 public:
  /// `source` must outlive the reader.
  static Result<Reader> open(ImageSource& source);

  uint64_t root_nid() const { return root_nid_; }
  uint64_t inode_count() const { return inode_count_; }

  Result<Inode> inode(uint64_t nid) const;
  /// Calls `visit` for the entries from `cookie` on (0 = the first, in stored order, `.` and `..`
  /// included), each with the cookie of the entry after it; stops early when it returns false.
  Status read_directory(const Inode& directory, uint64_t cookie,
                        const std::function<bool(const Dirent&, uint64_t next_cookie)>& visit) const;
  /// Binary search; nothing when the name is absent.
  Result<std::optional<Dirent>> lookup(const Inode& directory, std::string_view name) const;
  Result<std::string> read_link(const Inode& link) const;
  /// Full names → values.
  Result<std::map<std::string, std::string>> xattrs(const Inode& inode) const;
  /// The extents of [offset, offset + size) in order, clipped to the file.
  Result<std::vector<Extent>> extents(const Inode& file, uint64_t offset, uint64_t size) const;
  /// Fills the front of `to`; fewer bytes only at the end of the file.
  Result<size_t> read(const Inode& file, uint64_t offset, MutableByteView to) const;
  /// Follows `path` from the root, without following symlinks. kNotFound names the component.
  Result<Inode> walk(std::string_view path) const;

 private:
  explicit Reader(ImageSource& source) : source_(&source) {}

  ImageSource* source_;
  uint64_t root_nid_ = 0;
  uint64_t inode_count_ = 0;
  uint64_t meta_offset_ = 0;
  uint64_t xattr_offset_ = 0;
  int64_t build_time_s_ = 0;
  uint32_t build_time_ns_ = 0;
};

}  // namespace varve::chunkstore::erofs
