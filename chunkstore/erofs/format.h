#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

/// On-disk structures of EROFS, uncompressed part. All fields are little-endian.
/// Source: Linux fs/erofs/erofs_fs.h and Documentation/filesystems/erofs.rst; varve-erofs(5) says
/// which of them Varve's own images use.
namespace varve::chunkstore::erofs {

inline constexpr uint32_t kBlockBits = 12;
inline constexpr uint32_t kBlockBytes = 1U << kBlockBits;
inline constexpr uint64_t kSuperBlockOffset = 1024;
inline constexpr uint32_t kSuperBlockMagic = 0xE0F5E1E2;
/// nids count slots of this size from the start of the metadata area.
inline constexpr uint32_t kInodeSlotBytes = 32;
inline constexpr uint32_t kNameBytesMax = 255;
/// Longest path that Varve makes a layer of or walks to, bytes: four times what a system call
/// takes. A tree of one path has a directory for every other byte of it.
inline constexpr size_t kPathBytesMax = 16384;
/// Block address of a hole in a chunk map, and of a file without blocks.
inline constexpr uint32_t kNullBlock = 0xFFFFFFFF;

inline constexpr uint32_t kFeatureCompatSuperBlockChecksum = 0x1;
inline constexpr uint32_t kFeatureCompatMtime = 0x2;

inline constexpr uint32_t kFeatureIncompatZeroPadding = 0x01;  ///< Concerns compressed files only.
inline constexpr uint32_t kFeatureIncompatChunkedFile = 0x04;
inline constexpr uint32_t kFeatureIncompatXattrPrefixes = 0x40;
inline constexpr uint32_t kFeatureIncompatKnown =
    kFeatureIncompatZeroPadding | kFeatureIncompatChunkedFile | kFeatureIncompatXattrPrefixes;

struct SuperBlock {
  uint32_t magic;               // 0
  uint32_t checksum;            // 4    CRC-32C of [1024, 4096), this field taken as 0
  uint32_t feature_compat;      // 8
  uint8_t block_bits;           // 12
  uint8_t extension_slots;      // 13
  uint16_t root_nid;            // 14
  uint64_t inode_count;         // 16
  uint64_t build_time_s;        // 24   mtime of compact inodes
  uint32_t build_time_ns;       // 32
  uint32_t block_count;         // 36
  uint32_t meta_block;          // 40
  uint32_t xattr_block;         // 44   start of the shared xattrs
  uint8_t uuid[16];             // 48
  uint8_t volume_name[16];      // 64
  uint32_t feature_incompat;    // 80
  uint16_t compression;         // 84
  uint16_t extra_device_count;  // 86
  uint16_t device_slot;         // 88
  uint8_t dir_block_bits;       // 90   on top of block_bits
  uint8_t xattr_prefix_count;   // 91
  uint32_t xattr_prefix_start;  // 92   in units of 4 bytes
  uint64_t packed_nid;          // 96
  uint8_t reserved[24];         // 104
};
static_assert(sizeof(SuperBlock) == 128);
static_assert(offsetof(SuperBlock, feature_incompat) == 80);
static_assert(offsetof(SuperBlock, packed_nid) == 96);

/// Inode::layout; bits 1..3 of an inode's format field.
enum class Layout : uint8_t {
  kFlatPlain = 0,  ///< All data in consecutive blocks.
  kCompressedFull = 1,
  kFlatInline = 2,  ///< As plain, but the last, partial block follows the inode.
  kCompressedCompact = 3,
  kChunkBased = 4,  ///< A map of equally sized chunks follows the inode.
};

inline constexpr uint16_t kInodeFormatExtended = 0x1;
inline constexpr uint16_t kInodeFormatLayoutShift = 1;
inline constexpr uint16_t kInodeFormatKnown = 0xF;

struct InodeCompact {
  uint16_t format;       // 0
  uint16_t xattr_count;  // 2    0, or 1 + inline xattr words after the 12-byte header
  uint16_t mode;         // 4
  uint16_t nlink;        // 6
  uint32_t size;         // 8
  uint32_t reserved;     // 12
  uint32_t data;         // 16   first block, rdev or chunk format
  uint32_t ino;          // 20
  uint16_t uid;          // 24
  uint16_t gid;          // 26
  uint32_t reserved2;    // 28
};
static_assert(sizeof(InodeCompact) == 32);

struct InodeExtended {
  uint16_t format;        // 0
  uint16_t xattr_count;   // 2
  uint16_t mode;          // 4
  uint16_t reserved;      // 6
  uint64_t size;          // 8
  uint32_t data;          // 16
  uint32_t ino;           // 20
  uint32_t uid;           // 24
  uint32_t gid;           // 28
  uint64_t mtime_s;       // 32
  uint32_t mtime_ns;      // 40
  uint32_t nlink;         // 44
  uint8_t reserved2[16];  // 48
};
static_assert(sizeof(InodeExtended) == 64);

/// Low bits of a chunk format: log2(chunk bytes) - kBlockBits.
inline constexpr uint32_t kChunkFormatBitsMask = 0x1F;
/// Entries are ChunkIndex; without it plain 4-byte block addresses.
inline constexpr uint32_t kChunkFormatIndexes = 0x20;
inline constexpr uint32_t kChunkFormatKnown = kChunkFormatBitsMask | kChunkFormatIndexes;

/// Bytes of one chunk of a map whose inode has chunk format `format`.
constexpr uint64_t map_chunk_bytes(uint32_t format) {
  return uint64_t{kBlockBytes} << (format & kChunkFormatBitsMask);
}

struct ChunkIndex {
  uint16_t advise;     // 0
  uint16_t device_id;  // 2
  uint32_t block;      // 4
};
static_assert(sizeof(ChunkIndex) == 8);

/// Start of an inode's inline xattrs; `shared_count` 4-byte ids and then entries follow.
struct XattrHeader {
  uint32_t name_filter;  // 0
  uint8_t shared_count;  // 4
  uint8_t reserved[7];   // 5
};
static_assert(sizeof(XattrHeader) == 12);

/// Name (without its prefix) and value follow; entries are padded to 4 bytes.
struct XattrEntry {
  uint8_t name_size;    // 0
  uint8_t name_index;   // 1    prefix; bit 7: index into the table of long prefixes
  uint16_t value_size;  // 2
};
static_assert(sizeof(XattrEntry) == 4);

inline constexpr uint8_t kXattrLongPrefix = 0x80;
inline constexpr uint32_t kXattrValueBytesMax = 0xFFFF;
/// Largest inline xattr body that the 16-bit count can express.
inline constexpr uint32_t kXattrBodyBytesMax = sizeof(XattrHeader) + 4U * (0xFFFFU - 1);

/// Indexes of XattrEntry::name_index; `system.posix_acl_*` are whole names.
struct XattrPrefix {
  uint8_t index;
  std::string_view text;
};
inline constexpr XattrPrefix kXattrPrefixes[] = {
    {1, "user."},    {2, "system.posix_acl_access"},
    {4, "trusted."}, {3, "system.posix_acl_default"},
    {5, "lustre."},  {6, "security."},
};

struct DirentHead {
  uint64_t nid;          // 0
  uint16_t name_offset;  // 8   inside the directory block
  uint8_t file_type;     // 10
  uint8_t reserved;      // 11
} __attribute__((packed));
static_assert(sizeof(DirentHead) == 12);

/// DirentHead::file_type.
enum class FileType : uint8_t {
  kUnknown = 0,
  kRegular = 1,
  kDirectory = 2,
  kCharDevice = 3,
  kBlockDevice = 4,
  kFifo = 5,
  kSocket = 6,
  kSymlink = 7,
};

/// The file type that a dirent shows for `mode` (S_IFMT bits); kUnknown for none of the seven.
FileType file_type_of_mode(uint32_t mode);

/// Linux's new_encode_dev: the 32-bit form in which inodes store device numbers.
constexpr uint32_t encode_rdev(uint32_t major, uint32_t minor) {
  return (minor & 0xFF) | (major << 8) | ((minor & ~0xFFU) << 12);
}
constexpr uint32_t rdev_major(uint32_t rdev) {
  return (rdev & 0xFFF00) >> 8;
}
constexpr uint32_t rdev_minor(uint32_t rdev) {
  return (rdev & 0xFF) | ((rdev >> 12) & 0xFFF00);
}

}  // namespace varve::chunkstore::erofs
