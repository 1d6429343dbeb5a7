#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <vector>

#include "base/error.h"
#include "chunkstore/build/data_writer.h"
#include "chunkstore/build/directory_packer.h"
#include "chunkstore/build/resolved_tree.h"
#include "chunkstore/erofs/format.h"

namespace varve::chunkstore {

/// One inode where it goes into the metadata region.
struct PlacedInode {
  uint64_t position = 0;  ///< Image offset, a multiple of the slot size.
  bool is_extended = false;
  erofs::Layout layout = erofs::Layout::kFlatPlain;
  uint64_t size = 0;
  uint32_t nlink = 0;
  Bytes xattr_body;               ///< With its header; empty without xattrs.
  Bytes tail;                     ///< Inline data or chunk map behind the xattrs.
  uint32_t data = 0;              ///< The inode's 4-byte data field.
  uint64_t block_area_count = 0;  ///< Blocks of its own in the block area.

  size_t inode_bytes() const {
    return is_extended ? sizeof(erofs::InodeExtended) : sizeof(erofs::InodeCompact);
  }
  uint64_t end() const { return position + inode_bytes() + xattr_body.size() + tail.size(); }
};

/// Gives each inode of a tree its place (varve-erofs(5), "Metadata region"): inodes in
/// breadth-first order from nid 36 on, behind them the whole blocks of directories and the symlink
/// targets that do not fit behind their inodes. Runs twice: sizes do not depend on addresses, so
/// the first run finds the nids and the region's size, the second has everything.
/// Streaming: two cursors, one on the inodes and one on the children of directories. Loop-local.
class TreeLayout {
 public:
  struct Addresses {
    std::vector<uint32_t> nids;     ///< By rank of an inode's first name.
    uint64_t block_area_block = 0;  ///< First block of the block area.
    uint64_t data_block = 0;        ///< First block of the data region.
  };
  using BlockTaker = DirectoryPacker::BlockTaker;

  /// @param plan        Null when the nodes carry their places themselves.
  /// @param addresses   Null in the first run.
  /// @param take_block  Gets the blocks of the block area, in order.
  static Result<TreeLayout> start(const ResolvedTree& tree, const DataPlan* plan,
                                  const Addresses* addresses, BlockTaker take_block);

  bool valid() const { return inodes_.valid(); }
  const TreeName& name() const { return inodes_.name(); }
  const Node& node() const { return inodes_.node(); }
  const PlacedInode& placed() const { return placed_; }
  Status next();

  /// After the last inode: blocks in the block area.
  uint64_t block_area_count() const { return block_area_count_; }
  /// After the last inode: where the last one ends.
  uint64_t inodes_end() const { return position_; }

 private:
  TreeLayout(const ResolvedTree& tree, const DataPlan* plan, const Addresses* addresses,
             BlockTaker take_block, ResolvedTree::InodeCursor inodes,
             ResolvedTree::NameCursor children);
  Status place();
  Status place_xattrs(bool has_whiteouts);
  Result<bool> place_directory(Bytes& inline_data);
  void place_large(const LargeFile& file);
  void place_regular();
  Status place_inline(Bytes inline_data);
  uint64_t nid_of(const TreeName& name) const;

  const ResolvedTree* tree_;
  const DataPlan* plan_;
  const Addresses* addresses_;
  BlockTaker take_block_;
  ResolvedTree::InodeCursor inodes_;
  ResolvedTree::NameCursor children_;
  std::deque<uint32_t> parent_nids_;  ///< Of the directories that come next.
  PlacedInode placed_;
  uint64_t position_;
  uint64_t block_area_count_ = 0;
  int64_t build_time_s_ = 0;
  uint32_t build_time_ns_ = 0;
};

}  // namespace varve::chunkstore
