#include "chunkstore/erofs/reader.h"

#include <sys/stat.h>

#include <algorithm>

#include "chunkstore/erofs/crc32c.h"

namespace varve::chunkstore::erofs {
namespace {

std::string at(uint64_t nid, uint64_t offset) {
  return "EROFS inode " + std::to_string(nid) + " at offset " + std::to_string(offset);
}

tl::unexpected<Error> corrupt(const Inode& inode, std::string what) {
  return fail(ErrorCode::kCorruption, at(inode.nid, inode.body_offset) + ": " + std::move(what));
}

bool is_device(uint32_t mode) {
  return S_ISCHR(mode) || S_ISBLK(mode);
}
bool has_data(uint32_t mode) {
  return S_ISREG(mode) || S_ISDIR(mode) || S_ISLNK(mode);
}

}  // namespace

FileType file_type_of_mode(uint32_t mode) {
  switch (mode & S_IFMT) {
    case S_IFREG:
      return FileType::kRegular;
    case S_IFDIR:
      return FileType::kDirectory;
    case S_IFCHR:
      return FileType::kCharDevice;
    case S_IFBLK:
      return FileType::kBlockDevice;
    case S_IFIFO:
      return FileType::kFifo;
    case S_IFSOCK:
      return FileType::kSocket;
    case S_IFLNK:
      return FileType::kSymlink;
    default:
      return FileType::kUnknown;
  }
}

Result<Reader> Reader::open(ImageSource& source) {
  Reader reader(source);
  VARVE_TRY(reader.load_super_block());
  return reader;
}

Status Reader::check_super_block(const SuperBlock& super) const {
  if (super.magic != kSuperBlockMagic)
    return fail(ErrorCode::kCorruption, "not an EROFS image: wrong magic at offset 1024");
  if (super.block_bits != kBlockBits || super.dir_block_bits != 0)
    return fail(ErrorCode::kUnsupported, "EROFS blocks of another size than 4,096 bytes");
  const uint32_t unknown = super.feature_incompat & ~kFeatureIncompatKnown;
  if (unknown != 0)
    return fail(ErrorCode::kUnsupported,
                "EROFS image with unknown incompatible features, mask " + std::to_string(unknown));
  if (super.extra_device_count != 0)
    return fail(ErrorCode::kUnsupported, "EROFS image with extra devices");
  if (super.build_time_ns >= 1'000'000'000)
    return fail(ErrorCode::kCorruption, "EROFS superblock: nanoseconds out of range");
  return {};
}

Status Reader::load_super_block() {
  if (source_->size() < kBlockBytes)
    return fail(ErrorCode::kCorruption,
                "not an EROFS image: " + std::to_string(source_->size()) + " bytes");
  Bytes block(kBlockBytes - kSuperBlockOffset);
  VARVE_TRY(source_->read(kSuperBlockOffset, block));
  const auto super = load_le<SuperBlock>(block.data());
  VARVE_TRY(check_super_block(super));
  if ((super.feature_compat & kFeatureCompatSuperBlockChecksum) != 0) {
    store_le<uint32_t>(block.data() + offsetof(SuperBlock, checksum), 0);
    if (crc32c(0xFFFFFFFF, block) != super.checksum)
      return fail(ErrorCode::kCorruption, "EROFS superblock: wrong checksum");
  }
  root_nid_ = super.root_nid;
  inode_count_ = super.inode_count;
  meta_offset_ = uint64_t{super.meta_block} << kBlockBits;
  xattr_offset_ = uint64_t{super.xattr_block} << kBlockBits;
  build_time_s_ = static_cast<int64_t>(super.build_time_s);
  build_time_ns_ = super.build_time_ns;
  if (meta_offset_ >= source_->size())
    return fail(ErrorCode::kCorruption, "EROFS superblock: metadata area outside the image");
  if ((super.feature_incompat & kFeatureIncompatXattrPrefixes) != 0)
    VARVE_TRY(
        load_xattr_prefixes(uint64_t{super.xattr_prefix_start} * 4, super.xattr_prefix_count));
  VARVE_ASSIGN(const Inode root, inode(root_nid_));
  if (!S_ISDIR(root.mode)) return corrupt(root, "the root is not a directory");
  return {};
}

Status Reader::load_xattr_prefixes(uint64_t offset, uint32_t count) {
  if (count > 0x80)
    return fail(ErrorCode::kCorruption, "EROFS superblock: too many xattr prefixes");
  for (uint32_t i = 0; i < count; ++i) {
    // Each: 16-bit length, base index, infix; starts are aligned to 4 bytes.
    offset = align_up(offset, 4);
    VARVE_TRY(check_range(offset, 2, 0, "xattr prefix"));
    uint8_t length_bytes[2];
    VARVE_TRY(source_->read(offset, length_bytes));
    const auto length = load_le<uint16_t>(length_bytes);
    if (length < 1 || length > kNameBytesMax + 1)
      return fail(ErrorCode::kCorruption,
                  "EROFS xattr prefix at offset " + std::to_string(offset) + ": wrong length");
    VARVE_TRY(check_range(offset + 2, length, 0, "xattr prefix"));
    Bytes prefix(length);
    VARVE_TRY(source_->read(offset + 2, prefix));
    long_prefixes_.push_back({prefix[0], std::string(as_text(ByteView(prefix).subspan(1)))});
    offset += 2 + length;
  }
  return {};
}

Status Reader::check_range(uint64_t offset, uint64_t size, uint64_t nid, const char* what) const {
  const uint64_t image_size = source_->size();
  if (offset > image_size || size > image_size - offset)
    return fail(ErrorCode::kCorruption, at(nid, offset) + ": " + what + " outside the image");
  return {};
}

Result<Inode> Reader::inode(uint64_t nid) const {
  const uint64_t slot_count = (source_->size() - meta_offset_) / kInodeSlotBytes;
  if (nid >= slot_count)
    return fail(ErrorCode::kCorruption,
                "EROFS inode " + std::to_string(nid) + " lies outside the image");
  const uint64_t offset = meta_offset_ + nid * kInodeSlotBytes;
  uint8_t raw[sizeof(InodeExtended)] = {};
  const size_t available = std::min<uint64_t>(sizeof(raw), source_->size() - offset);
  VARVE_TRY(source_->read(offset, MutableByteView(raw, available)));

  const auto format = load_le<uint16_t>(raw);
  if ((format & ~kInodeFormatKnown) != 0)
    return fail(ErrorCode::kUnsupported, at(nid, offset) + ": unknown inode format");
  const bool is_extended = (format & kInodeFormatExtended) != 0;
  if (is_extended && available < sizeof(InodeExtended))
    return fail(ErrorCode::kCorruption, at(nid, offset) + ": inode cut off");

  Inode inode;
  inode.nid = nid;
  inode.layout = static_cast<Layout>(format >> kInodeFormatLayoutShift);
  uint32_t data = 0;
  uint16_t xattr_count = 0;
  if (is_extended) {
    const auto from = load_le<InodeExtended>(raw);
    inode.mode = from.mode;
    inode.ino = from.ino;
    inode.uid = from.uid;
    inode.gid = from.gid;
    inode.nlink = from.nlink;
    inode.size = from.size;
    inode.mtime_s = static_cast<int64_t>(from.mtime_s);
    inode.mtime_ns = from.mtime_ns;
    data = from.data;
    xattr_count = from.xattr_count;
  } else {
    const auto from = load_le<InodeCompact>(raw);
    inode.mode = from.mode;
    inode.ino = from.ino;
    inode.uid = from.uid;
    inode.gid = from.gid;
    inode.nlink = from.nlink;
    inode.size = from.size;
    inode.mtime_s = build_time_s_;
    inode.mtime_ns = build_time_ns_;
    data = from.data;
    xattr_count = from.xattr_count;
  }
  inode.body_offset = offset + (is_extended ? sizeof(InodeExtended) : sizeof(InodeCompact));
  if (xattr_count != 0) inode.xattr_size = sizeof(XattrHeader) + 4U * (xattr_count - 1U);

  if (file_type_of_mode(inode.mode) == FileType::kUnknown) return corrupt(inode, "no file type");
  if (inode.mtime_ns >= 1'000'000'000) return corrupt(inode, "nanoseconds out of range");
  if (inode.size > INT64_MAX) return corrupt(inode, "size out of range");
  VARVE_TRY(check_range(inode.body_offset, inode.xattr_size, nid, "xattrs"));
  if (is_device(inode.mode)) inode.rdev = data;
  if (has_data(inode.mode)) {
    inode.layout_word = data;
    if (inode.layout != Layout::kFlatPlain && inode.layout != Layout::kFlatInline &&
        inode.layout != Layout::kChunkBased)
      return fail(ErrorCode::kUnsupported, at(nid, offset) + ": compressed or unknown data layout");
  }
  return inode;
}

Result<Reader::ChunkMap> Reader::chunk_map(const Inode& file) const {
  if ((file.layout_word & 0xFFFF & ~kChunkFormatKnown) != 0)
    return fail(ErrorCode::kUnsupported, at(file.nid, file.body_offset) + ": unknown chunk format");
  ChunkMap map;
  map.chunk_bytes = map_chunk_bytes(file.layout_word);
  map.entry_bytes = (file.layout_word & kChunkFormatIndexes) != 0 ? sizeof(ChunkIndex) : 4;
  map.map_offset = align_up(file.body_offset + file.xattr_size, map.entry_bytes);
  const uint64_t chunk_count =
      file.size / map.chunk_bytes + (file.size % map.chunk_bytes != 0 ? 1 : 0);
  if (chunk_count > source_->size() / map.entry_bytes)
    return corrupt(file, "chunk map larger than the image");
  VARVE_TRY(check_range(map.map_offset, chunk_count * map.entry_bytes, file.nid, "chunk map"));
  return map;
}

Status Reader::append_chunk_extents(const Inode& file, uint64_t offset, uint64_t end,
                                    std::vector<Extent>& extents) const {
  VARVE_ASSIGN(const ChunkMap map, chunk_map(file));
  const uint64_t first = offset / map.chunk_bytes;
  const uint64_t count = (end - 1) / map.chunk_bytes - first + 1;
  Bytes page;
  constexpr uint64_t kEntriesPerRead = 1024;
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t in_page = i % kEntriesPerRead;
    if (in_page == 0) {
      page.resize(std::min(kEntriesPerRead, count - i) * map.entry_bytes);
      VARVE_TRY(source_->read(map.map_offset + (first + i) * map.entry_bytes, page));
    }
    const uint8_t* entry = page.data() + in_page * map.entry_bytes;
    uint32_t block = 0;
    if (map.entry_bytes == sizeof(ChunkIndex)) {
      const auto index = load_le<ChunkIndex>(entry);
      if (index.device_id != 0 && index.block != kNullBlock)
        return fail(ErrorCode::kUnsupported, at(file.nid, file.body_offset) + ": another device");
      block = index.block;
    } else {
      block = load_le<uint32_t>(entry);
    }
    const uint64_t chunk_start = (first + i) * map.chunk_bytes;
    const uint64_t from = std::max(offset, chunk_start);
    const uint64_t size = std::min(end, chunk_start + map.chunk_bytes) - from;
    std::optional<uint64_t> image_offset;
    if (block != kNullBlock) {
      image_offset = (uint64_t{block} << kBlockBits) + (from - chunk_start);
      VARVE_TRY(check_range(*image_offset, size, file.nid, "chunk"));
    }
    if (!extents.empty()) {
      Extent& last = extents.back();
      const bool continues =
          image_offset.has_value()
              ? last.image_offset && *last.image_offset + last.size == *image_offset
              : !last.image_offset.has_value();
      if (continues) {
        last.size += size;
        continue;
      }
    }
    extents.push_back({from, size, image_offset});
  }
  return {};
}

Result<std::vector<Extent>> Reader::extents(const Inode& file, uint64_t offset,
                                            uint64_t size) const {
  std::vector<Extent> extents;
  if (!has_data(file.mode) || size == 0 || offset >= file.size) return extents;
  const uint64_t end = offset + std::min(size, file.size - offset);
  if (file.layout == Layout::kChunkBased) {
    VARVE_TRY(append_chunk_extents(file, offset, end, extents));
    return extents;
  }

  // Flat: whole blocks at the first block's address, the last one after the inode if inline.
  uint64_t blocks_end = file.size;
  if (file.layout == Layout::kFlatInline) blocks_end = (file.size - 1) & ~uint64_t{kBlockBytes - 1};
  if (offset < blocks_end) {
    const uint64_t start = (uint64_t{file.layout_word} << kBlockBits) + offset;
    const uint64_t run = std::min(end, blocks_end) - offset;
    VARVE_TRY(check_range(start, run, file.nid, "data"));
    extents.push_back({offset, run, start});
  }
  if (end > blocks_end) {
    const uint64_t tail = file.body_offset + file.xattr_size;
    const uint64_t tail_size = file.size - blocks_end;
    if (tail % kBlockBytes + tail_size > kBlockBytes)
      return corrupt(file, "inline data crosses a block boundary");
    VARVE_TRY(check_range(tail, tail_size, file.nid, "inline data"));
    const uint64_t from = std::max(offset, blocks_end);
    extents.push_back({from, end - from, tail + (from - blocks_end)});
  }
  return extents;
}

Result<size_t> Reader::read(const Inode& file, uint64_t offset, MutableByteView to) const {
  VARVE_ASSIGN(const auto runs, extents(file, offset, to.size()));
  size_t filled = 0;
  for (const Extent& run : runs) {
    const MutableByteView part = to.subspan(filled, run.size);
    if (run.image_offset) {
      VARVE_TRY(source_->read(*run.image_offset, part));
    } else {
      std::fill(part.begin(), part.end(), uint8_t{0});
    }
    filled += run.size;
  }
  return filled;
}

Result<std::string> Reader::read_link(const Inode& link) const {
  if (!S_ISLNK(link.mode)) return fail(ErrorCode::kInvalidArgument, "not a symbolic link");
  if (link.size == 0 || link.size > kBlockBytes)
    return corrupt(link, "symbolic link of " + std::to_string(link.size) + " bytes");
  std::string target(link.size, '\0');
  VARVE_ASSIGN(const size_t size,
               read(link, 0, {reinterpret_cast<uint8_t*>(target.data()), target.size()}));
  if (size != target.size() || target.find('\0') != std::string::npos)
    return corrupt(link, "symbolic link with a NUL in its target");
  return target;
}

}  // namespace varve::chunkstore::erofs
