#include "chunkstore/build/metadata_writer.h"

#include <sys/stat.h>

#include <cstring>

#include "base/check.h"
#include "chunkstore/build/path_key.h"
#include "chunkstore/build/spool.h"
#include "chunkstore/build/tree_layout.h"
#include "chunkstore/erofs/crc32c.h"
#include "chunkstore/erofs/format.h"

namespace varve::chunkstore {
namespace {

// The metadata region is cut into chunks of this size, the last one shorter.
constexpr size_t kMetadataChunkBytes = 256 << 10;
constexpr size_t kBlockSpoolBytes = 16 << 20;
constexpr uint32_t kHighIdFirst = 65536;
// More ids than a launcher could ever map; a list of them must stay small.
constexpr size_t kHighIdCountMax = 65536;

/// Cuts the metadata region into chunks as it is written. Keeps the first chunk until the end: its
/// superblock depends on all the others.
class MetadataStream {
 public:
  explicit MetadataStream(ChunkSink& sink) : sink_(sink) {}

  uint64_t position() const { return position_; }
  Status append(ByteView bytes) {
    while (!bytes.empty()) {
      const size_t part = std::min(bytes.size(), kMetadataChunkBytes - buffer_.size());
      varve::append(buffer_, bytes.first(part));
      bytes = bytes.subspan(part);
      position_ += part;
      if (buffer_.size() == kMetadataChunkBytes) VARVE_TRY(flush());
    }
    return {};
  }
  Status append_zeros_to(uint64_t position) {
    static constexpr uint8_t kZeros[erofs::kBlockBytes] = {};
    VARVE_CHECK_OP(position, >=, position_);
    while (position_ < position)
      VARVE_TRY(append({kZeros, std::min<uint64_t>(sizeof(kZeros), position - position_)}));
    return {};
  }

  /// Completes and submits the first chunk; returns all of them, with their ids.
  Result<std::vector<LayerChunk>> finish(erofs::SuperBlock super,
                                         const std::vector<LayerChunk>& data_chunks) {
    if (!buffer_.empty()) VARVE_TRY(flush());
    VARVE_TRY(sink_.drain());
    // The uuid is a function of all other bytes of the image.
    std::memcpy(first_.data() + erofs::kSuperBlockOffset, &super, sizeof(super));
    Sha256 identity;
    identity.update(sha256(first_).view());
    for (const auto& [ordinal, size] : rest_) identity.update(sink_.id(ordinal).view());
    for (const LayerChunk& chunk : data_chunks) identity.update(chunk.id.view());
    const Digest uuid = identity.finish();
    std::memcpy(super.uuid, uuid.bytes.data(), sizeof(super.uuid));
    // RFC 9562, version 8: made by a rule of one's own.
    super.uuid[6] = static_cast<uint8_t>((super.uuid[6] & 0x0F) | 0x80);
    super.uuid[8] = static_cast<uint8_t>((super.uuid[8] & 0x3F) | 0x80);
    std::memcpy(first_.data() + erofs::kSuperBlockOffset, &super, sizeof(super));
    super.checksum = erofs::crc32c(
        0xFFFFFFFF, ByteView(first_).subspan(erofs::kSuperBlockOffset,
                                             erofs::kBlockBytes - erofs::kSuperBlockOffset));
    std::memcpy(first_.data() + erofs::kSuperBlockOffset, &super, sizeof(super));

    const auto first_size = static_cast<uint32_t>(first_.size());
    VARVE_ASSIGN(const uint64_t first_ordinal, sink_.submit(std::move(first_)));
    VARVE_TRY(sink_.drain());
    std::vector<LayerChunk> chunks = {{sink_.id(first_ordinal), first_size}};
    for (const auto& [ordinal, size] : rest_) chunks.push_back({sink_.id(ordinal), size});
    return chunks;
  }

 private:
  Status flush() {
    if (first_.empty()) {
      first_ = std::move(buffer_);
    } else {
      const auto size = static_cast<uint32_t>(buffer_.size());
      VARVE_ASSIGN(const uint64_t ordinal, sink_.submit(std::move(buffer_)));
      rest_.emplace_back(ordinal, size);
    }
    buffer_ = Bytes();
    return {};
  }

  ChunkSink& sink_;
  Bytes first_;
  Bytes buffer_;
  uint64_t position_ = 0;
  std::vector<std::pair<uint64_t, uint32_t>> rest_;  ///< Ordinal and size of the other chunks.
};

void append_inode(const Node& node, const PlacedInode& placed, uint32_t ino, Bytes& to) {
  const auto format = static_cast<uint16_t>(
      (static_cast<uint16_t>(placed.layout) << erofs::kInodeFormatLayoutShift) |
      (placed.is_extended ? erofs::kInodeFormatExtended : 0));
  const auto xattr_count = static_cast<uint16_t>(
      placed.xattr_body.empty() ? 0
                                : 1 + (placed.xattr_body.size() - sizeof(erofs::XattrHeader)) / 4);
  if (placed.is_extended) {
    erofs::InodeExtended inode{};
    inode.format = format;
    inode.xattr_count = xattr_count;
    inode.mode = static_cast<uint16_t>(node.mode);
    inode.size = placed.size;
    inode.data = placed.data;
    inode.ino = ino;
    inode.uid = node.uid;
    inode.gid = node.gid;
    inode.mtime_s = static_cast<uint64_t>(node.mtime_s);
    inode.mtime_ns = node.mtime_ns;
    inode.nlink = placed.nlink;
    append_le(to, inode);
  } else {
    erofs::InodeCompact inode{};
    inode.format = format;
    inode.xattr_count = xattr_count;
    inode.mode = static_cast<uint16_t>(node.mode);
    inode.nlink = static_cast<uint16_t>(placed.nlink);
    inode.size = static_cast<uint32_t>(placed.size);
    inode.data = placed.data;
    inode.ino = ino;
    inode.uid = static_cast<uint16_t>(node.uid);
    inode.gid = static_cast<uint16_t>(node.gid);
    append_le(to, inode);
  }
  append(to, placed.xattr_body);
  append(to, placed.tail);
}

Status note_ids(const TreeName& name, const Node& node, BuiltLayer& layer) {
  std::vector<uint32_t> ids = acl_ids(node.xattr_entries);
  ids.push_back(node.uid);
  ids.push_back(node.gid);
  for (const uint32_t id : ids) {
    if (id < kHighIdFirst || layer.high_ids.contains(id)) continue;
    if (layer.high_ids.size() == kHighIdCountMax)
      return fail(ErrorCode::kInvalidArgument, quoted(key_to_path(name.path_key)) + ": more than " +
                                                   std::to_string(kHighIdCountMax) +
                                                   " different ids from 65536 on");
    layer.high_ids.emplace(id, key_to_path(name.path_key));
  }
  return {};
}

void count_inode(const TreeName& name, const Node& node, LayerCounts& counts) {
  ++counts.inodes;
  if (S_ISDIR(node.mode)) ++counts.directories;
  if (S_ISREG(node.mode)) ++counts.regular_files;
  if (S_ISCHR(node.mode) && node.rdev == 0) ++counts.whiteouts;
  if (name.is_opaque) ++counts.opaque_directories;
}

/// First run: nids, and where the regions start.
Result<TreeLayout::Addresses> lay_out(const ResolvedTree& tree, const DataPlan* plan,
                                      BuiltLayer& layer, bool& has_chunk_maps) {
  TreeLayout::Addresses addresses;
  addresses.nids.assign(tree.name_count(), 0);
  VARVE_ASSIGN(TreeLayout layout,
               TreeLayout::start(tree, plan, nullptr, [](ByteView) -> Status { return {}; }));
  while (layout.valid()) {
    addresses.nids[layout.name().rank] =
        static_cast<uint32_t>(layout.placed().position / erofs::kInodeSlotBytes);
    has_chunk_maps = has_chunk_maps || layout.placed().layout == erofs::Layout::kChunkBased;
    count_inode(layout.name(), layout.node(), layer.counts);
    if (layout.name().rank == 0) layer.is_root_opaque = layout.name().is_opaque;
    VARVE_TRY(note_ids(layout.name(), layout.node(), layer));
    VARVE_TRY(layout.next());
  }
  addresses.block_area_block =
      align_up(layout.inodes_end(), erofs::kBlockBytes) / erofs::kBlockBytes;
  addresses.data_block = addresses.block_area_block + layout.block_area_count();
  return addresses;
}

/// Second run: writes the region behind the superblock.
Status write_region(const ResolvedTree& tree, const DataPlan* plan,
                    const TreeLayout::Addresses& addresses, const std::string& temp_directory,
                    MetadataStream& stream) {
  Spool block_area(kBlockSpoolBytes, temp_directory);
  VARVE_ASSIGN(TreeLayout layout, TreeLayout::start(tree, plan, &addresses, [&](ByteView block) {
                 return block_area.append(block);
               }));
  Bytes inode;
  for (uint32_t ino = 1; layout.valid(); ++ino) {
    VARVE_TRY(stream.append_zeros_to(layout.placed().position));
    inode.clear();
    append_inode(layout.node(), layout.placed(), ino, inode);
    VARVE_TRY(stream.append(inode));
    VARVE_TRY(layout.next());
  }
  VARVE_TRY(stream.append_zeros_to(addresses.block_area_block * erofs::kBlockBytes));
  Bytes part;
  for (uint64_t at = 0; at < block_area.size(); at += part.size()) {
    part.resize(std::min<uint64_t>(kMetadataChunkBytes, block_area.size() - at));
    VARVE_TRY(block_area.read(at, part));
    VARVE_TRY(stream.append(part));
  }
  VARVE_CHECK_OP(stream.position(), ==, addresses.data_block * erofs::kBlockBytes);
  return {};
}

}  // namespace

Result<BuiltLayer> write_metadata(const ResolvedTree& tree, const DataPlan* plan,
                                  std::vector<LayerChunk> data_chunks, uint64_t data_blocks,
                                  LayerCounts counts, const std::string& temp_directory,
                                  ChunkSink& sink) {
  BuiltLayer layer;
  layer.counts = counts;
  layer.counts.names = tree.name_count();
  bool has_chunk_maps = false;
  VARVE_ASSIGN(const auto addresses, lay_out(tree, plan, layer, has_chunk_maps));
  const uint64_t block_count = addresses.data_block + data_blocks;
  if (block_count >= erofs::kNullBlock)
    return fail(ErrorCode::kUnsupported, "an image of more than 16 TiB");

  MetadataStream stream(sink);
  VARVE_TRY(write_region(tree, plan, addresses, temp_directory, stream));

  VARVE_ASSIGN(auto inodes, tree.inodes());
  erofs::SuperBlock super{};
  super.magic = erofs::kSuperBlockMagic;
  super.feature_compat = erofs::kFeatureCompatSuperBlockChecksum | erofs::kFeatureCompatMtime;
  super.block_bits = erofs::kBlockBits;
  super.root_nid = static_cast<uint16_t>(addresses.nids[0]);
  super.inode_count = layer.counts.inodes;
  super.build_time_s = static_cast<uint64_t>(inodes.node().mtime_s);
  super.build_time_ns = inodes.node().mtime_ns;
  super.block_count = static_cast<uint32_t>(block_count);
  super.feature_incompat = has_chunk_maps ? erofs::kFeatureIncompatChunkedFile : 0;
  VARVE_ASSIGN(layer.chunks, stream.finish(super, data_chunks));

  layer.chunks.reserve(layer.chunks.size() + data_chunks.size());
  layer.chunks.insert(layer.chunks.end(), data_chunks.begin(), data_chunks.end());
  layer.image_size = block_count * erofs::kBlockBytes;
  layer.metadata_size = addresses.data_block * erofs::kBlockBytes;
  layer.root_nid = addresses.nids[0];
  uint64_t size = 0;
  for (const LayerChunk& chunk : layer.chunks) size += chunk.raw_size;
  VARVE_CHECK_OP(size, ==, layer.image_size);
  return layer;
}

}  // namespace varve::chunkstore
