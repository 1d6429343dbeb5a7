#pragma once

#include <cstdint>
#include <string_view>

#include "base/bytes.h"
#include "chunkstore/erofs/reader.h"
#include "fs/fuse/protocol.h"

namespace varve::fs {

/// What stat(2) shows of a tree's inode as node `node_id`.
fuse::Attr tree_attributes(uint64_t node_id, const chunkstore::erofs::Inode& inode);
/// A directory that exists only in the mount, of `link_count` links.
fuse::Attr synthetic_directory_attributes(uint64_t node_id, uint32_t link_count, int64_t time_s);
/// image.erofs.
fuse::Attr image_attributes(uint64_t node_id, uint64_t image_bytes, int64_t time_s);

/// An entry that the kernel may keep for ever: nothing that has a node id changes.
fuse::EntryOut permanent_entry(const fuse::Attr& attributes);
fuse::AttrOut permanent_attributes(const fuse::Attr& attributes);

/// The type of a directory entry (DT_*) for an EROFS file type.
uint32_t directory_entry_type(uint8_t erofs_file_type);

/// Fills a READDIR or READDIRPLUS reply.
class DirectoryWriter {
 public:
  /// @param with_attributes  READDIRPLUS.
  DirectoryWriter(MutableByteView to, bool with_attributes)
      : to_(to), with_attributes_(with_attributes) {}

  /// True when an entry of that name still fits.
  bool fits(std::string_view name) const;
  /// @param entry  What READDIRPLUS tells of it; a node id of 0 tells nothing (`.` and `..`).
  void add(std::string_view name, uint64_t ino, uint32_t type, uint64_t next_offset,
           const fuse::EntryOut& entry);
  size_t size() const { return size_; }

 private:
  size_t entry_bytes(std::string_view name) const;

  MutableByteView to_;
  bool with_attributes_;
  size_t size_ = 0;
};

}  // namespace varve::fs
