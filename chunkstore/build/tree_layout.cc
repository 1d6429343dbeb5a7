#include "chunkstore/build/tree_layout.h"

#include <sys/stat.h>

#include <algorithm>
#include <bit>

#include "base/check.h"
#include "chunkstore/build/path_key.h"

namespace varve::chunkstore {
namespace {

using erofs::kBlockBytes;
using erofs::kInodeSlotBytes;

// The root comes right behind the superblock.
constexpr uint64_t kRootPosition = erofs::kSuperBlockOffset + sizeof(erofs::SuperBlock);
static_assert(kRootPosition == 36 * kInodeSlotBytes);

uint32_t chunk_format(uint64_t unit_bytes) {
  return static_cast<uint32_t>(std::countr_zero(unit_bytes)) - erofs::kBlockBits;
}

}  // namespace

TreeLayout::TreeLayout(const ResolvedTree& tree, const DataPlan* plan, const Addresses* addresses,
                       BlockTaker take_block, ResolvedTree::InodeCursor inodes,
                       ResolvedTree::NameCursor children)
    : tree_(&tree),
      plan_(plan),
      addresses_(addresses),
      take_block_(std::move(take_block)),
      inodes_(std::move(inodes)),
      children_(std::move(children)),
      position_(kRootPosition) {}

Result<TreeLayout> TreeLayout::start(const ResolvedTree& tree, const DataPlan* plan,
                                     const Addresses* addresses, BlockTaker take_block) {
  VARVE_ASSIGN(auto inodes, tree.inodes());
  VARVE_ASSIGN(auto children, tree.names());
  VARVE_CHECK(inodes.valid());
  VARVE_TRY(children.next());  // The root is nobody's child.
  TreeLayout layout(tree, plan, addresses, std::move(take_block), std::move(inodes),
                    std::move(children));
  layout.build_time_s_ = layout.node().mtime_s;
  layout.build_time_ns_ = layout.node().mtime_ns;
  VARVE_TRY(layout.place());
  return layout;
}

Status TreeLayout::next() {
  VARVE_TRY(inodes_.next());
  return valid() ? place() : Status();
}

uint64_t TreeLayout::nid_of(const TreeName& name) const {
  if (addresses_ == nullptr) return 0;
  return addresses_->nids[name.is_linked ? tree_->first_rank(name.sequence) : name.rank];
}

Status TreeLayout::place() {
  const Node& node = inodes_.node();
  placed_ = PlacedInode();
  placed_.size = node.size;
  placed_.nlink = inodes_.name_count();

  Bytes inline_data;
  bool has_whiteouts = false;
  if (S_ISDIR(node.mode)) {
    VARVE_ASSIGN(has_whiteouts, place_directory(inline_data));
  } else if (S_ISLNK(node.mode)) {
    append(inline_data, as_bytes(node.target));
  } else if (S_ISREG(node.mode)) {
    place_regular();
  } else {
    placed_.data = node.rdev;
  }
  VARVE_TRY(place_xattrs(has_whiteouts));
  placed_.is_extended = node.uid > UINT16_MAX || node.gid > UINT16_MAX ||
                        placed_.nlink > UINT16_MAX || placed_.size > UINT32_MAX ||
                        node.mtime_s != build_time_s_ || node.mtime_ns != build_time_ns_;
  placed_.position = position_;
  if (!inline_data.empty()) VARVE_TRY(place_inline(std::move(inline_data)));
  if (placed_.position / kInodeSlotBytes > UINT32_MAX)
    return fail(ErrorCode::kUnsupported, "more than 128 GiB of metadata");
  position_ = align_up(placed_.end(), kInodeSlotBytes);
  return {};
}

/// The inode's own attributes, and behind them the marks.
Status TreeLayout::place_xattrs(bool has_whiteouts) {
  Bytes entries = inodes_.node().xattr_entries;
  const auto add_mark = [&](std::string_view mark, std::string_view value) -> Status {
    if (Status status = append_xattr(entries, mark, value); !status)
      return fail(std::move(status).error(), quoted(key_to_path(name().path_key)));
    return {};
  };
  if (name().is_opaque) VARVE_TRY(add_mark(kOpaqueXattr, kOpaqueXattrValue));
  if (has_whiteouts) VARVE_TRY(add_mark(kOriginXattr, ""));
  if (entries.empty()) return {};
  placed_.xattr_body.resize(sizeof(erofs::XattrHeader));
  append(placed_.xattr_body, entries);
  return {};
}

/// Packs the directory's entries; what does not fill a block goes into `inline_data`. Returns
/// whether a whiteout is among them.
Result<bool> TreeLayout::place_directory(Bytes& inline_data) {
  const TreeName& directory = name();
  const auto own_nid = static_cast<uint32_t>(nid_of(directory));
  uint32_t parent_nid = own_nid;
  if (!parent_nids_.empty()) {
    parent_nid = parent_nids_.front();
    parent_nids_.pop_front();
  }
  DirectoryPacker packer(own_nid, parent_nid, take_block_);
  bool has_whiteouts = false;
  while (children_.valid() && children_.name().depth == directory.depth + 1 &&
         is_below(children_.name().path_key, directory.path_key)) {
    const TreeName& child = children_.name();
    if (child.type == erofs::FileType::kDirectory) parent_nids_.push_back(own_nid);
    // Whiteouts never have a second name.
    has_whiteouts =
        has_whiteouts || (child.type == erofs::FileType::kCharDevice && !child.is_linked &&
                          Node::decode(child.encoded_node).rdev == 0);
    VARVE_TRY(packer.add(child.name(), nid_of(child), child.type));
    VARVE_TRY(children_.next());
  }
  VARVE_ASSIGN(inline_data, packer.finish());
  const uint64_t full_count = packer.full_block_count();
  placed_.size = full_count * kBlockBytes + inline_data.size();
  placed_.nlink = 2 + packer.subdirectory_count();
  placed_.block_area_count = full_count;
  if (addresses_ != nullptr && full_count > 0)
    placed_.data = static_cast<uint32_t>(addresses_->block_area_block + block_area_count_);
  block_area_count_ += full_count;
  return has_whiteouts;
}

/// Puts `inline_data` behind the inode, where all of it fits into one block and moving to the next
/// one wastes no more than a block of its own would; else into the block area.
Status TreeLayout::place_inline(Bytes inline_data) {
  const uint64_t size = placed_.inode_bytes() + placed_.xattr_body.size() + inline_data.size();
  const uint64_t next_block = align_up(position_, kBlockBytes);
  const bool fits_here = position_ % kBlockBytes + size <= kBlockBytes;
  const bool fits_next =
      size <= kBlockBytes && next_block - position_ <= kBlockBytes - inline_data.size();
  if (fits_here || fits_next) {
    placed_.layout = erofs::Layout::kFlatInline;
    placed_.position = fits_here ? position_ : next_block;
    placed_.tail = std::move(inline_data);
    return {};
  }
  // The block area takes blocks in order, so this one follows the directory's others.
  if (addresses_ != nullptr && placed_.block_area_count == 0)
    placed_.data = static_cast<uint32_t>(addresses_->block_area_block + block_area_count_);
  ++placed_.block_area_count;
  ++block_area_count_;
  inline_data.resize(kBlockBytes);
  return take_block_(inline_data);
}

void TreeLayout::place_regular() {
  const Node& node = inodes_.node();
  const auto data_block = static_cast<uint32_t>(addresses_ == nullptr ? 0 : addresses_->data_block);
  if (node.content == ContentKind::kPlacedPlain) {
    placed_.data = data_block + node.placed_blocks.at(0);
  } else if (node.content == ContentKind::kPlacedMap) {
    placed_.layout = erofs::Layout::kChunkBased;
    placed_.data = node.content_index;
    for (const uint32_t block : node.placed_blocks)
      append_le(placed_.tail, block == erofs::kNullBlock ? block : data_block + block);
  } else if (plan_ != nullptr && plan_->places[name().rank] != kNoIndex) {
    const uint32_t where = plan_->places[name().rank];
    if ((where & DataPlan::kLargeFlag) != 0) {
      place_large(plan_->large_files[where & ~DataPlan::kLargeFlag]);
    } else {
      placed_.data = data_block + where;
    }
  }
}

void TreeLayout::place_large(const LargeFile& file) {
  const auto data_block = static_cast<uint32_t>(addresses_ == nullptr ? 0 : addresses_->data_block);
  uint32_t block = data_block + file.block;
  if (file.cut.holes.empty()) {
    placed_.data = block;
    return;
  }
  const uint64_t unit_bytes = hole_unit_bytes(file.cut.size);
  const uint64_t unit_count = (file.cut.size - 1) / unit_bytes + 1;
  placed_.layout = erofs::Layout::kChunkBased;
  placed_.data = chunk_format(unit_bytes);
  placed_.tail.reserve(unit_count * sizeof(uint32_t));
  auto hole = file.cut.holes.begin();
  for (uint64_t unit = 0; unit < unit_count; ++unit) {
    if (hole != file.cut.holes.end() && unit == uint64_t{hole->first} + hole->count) ++hole;
    if (hole != file.cut.holes.end() && unit >= hole->first) {
      append_le(placed_.tail, erofs::kNullBlock);
    } else {
      append_le(placed_.tail, block);
      block += static_cast<uint32_t>(unit_bytes / kBlockBytes);
    }
  }
}

}  // namespace varve::chunkstore
