#pragma once

#include <cstddef>
#include <cstdint>

/// The FUSE wire protocol, version 7.45, as far as a read-only filesystem meets it: what the kernel
/// writes to and reads from /dev/fuse and the io_uring entries. Declared here because the headers
/// of older distributions end before FUSE over io_uring.
/// Source: Linux include/uapi/linux/fuse.h; little-endian or big-endian as the host, naturally
/// aligned. Offsets that the kernel relies on are asserted below.
namespace varve::fs::fuse {

inline constexpr uint32_t kMajor = 7;
inline constexpr uint32_t kMinor = 45;
inline constexpr uint64_t kRootNodeId = 1;
/// The kernel refuses to read requests into less.
inline constexpr size_t kReadBufferBytesMin = 8192;

enum Opcode : uint32_t {
  kLookup = 1,
  kForget = 2,
  kGetattr = 3,
  kSetattr = 4,
  kReadlink = 5,
  kSymlink = 6,
  kMknod = 8,
  kMkdir = 9,
  kUnlink = 10,
  kRmdir = 11,
  kRename = 12,
  kLink = 13,
  kOpen = 14,
  kRead = 15,
  kWrite = 16,
  kStatfs = 17,
  kRelease = 18,
  kSetxattr = 21,
  kGetxattr = 22,
  kListxattr = 23,
  kRemovexattr = 24,
  kInit = 26,
  kOpendir = 27,
  kReaddir = 28,
  kReleasedir = 29,
  kCreate = 35,
  kInterrupt = 36,
  kDestroy = 38,
  kBatchForget = 42,
  kFallocate = 43,
  kReaddirplus = 44,
  kRename2 = 45,
  kTmpfile = 51,
};

/// Bits of InitIn/InitOut flags; bit 32 and up travel in flags2.
namespace init_flag {
inline constexpr uint64_t kAsyncRead = 1ULL << 0;
inline constexpr uint64_t kReaddirplus = 1ULL << 13;
inline constexpr uint64_t kAsyncDio = 1ULL << 15;
inline constexpr uint64_t kNoOpenSupport = 1ULL << 17;
inline constexpr uint64_t kParallelDirops = 1ULL << 18;
inline constexpr uint64_t kPosixAcl = 1ULL << 20;
inline constexpr uint64_t kMaxPages = 1ULL << 22;
inline constexpr uint64_t kCacheSymlinks = 1ULL << 23;
inline constexpr uint64_t kNoOpendirSupport = 1ULL << 24;
inline constexpr uint64_t kInitExt = 1ULL << 30;
inline constexpr uint64_t kOverIoUring = 1ULL << 41;
}  // namespace init_flag

inline constexpr uint32_t kOpenKeepCache = 1U << 1;
inline constexpr uint32_t kOpenCacheDir = 1U << 3;
inline constexpr uint32_t kOpenNoFlush = 1U << 5;

/// Codes of a notification: an OutHeader whose unique is 0 carries one in `error`.
inline constexpr int32_t kNotifyInvalInode = 2;
inline constexpr int32_t kNotifyInvalEntry = 3;

struct InHeader {
  uint32_t length;
  uint32_t opcode;
  uint64_t unique;
  uint64_t node_id;
  uint32_t uid;
  uint32_t gid;
  uint32_t pid;  ///< Thread id of the caller, 0 when it is not visible to the mounter.
  uint16_t extension_words;
  uint16_t padding;
};
static_assert(sizeof(InHeader) == 40 && offsetof(InHeader, node_id) == 16);

struct OutHeader {
  uint32_t length;
  int32_t error;  ///< 0 or -errno.
  uint64_t unique;
};
static_assert(sizeof(OutHeader) == 16);

struct Attr {
  uint64_t ino;
  uint64_t size;
  uint64_t blocks;
  int64_t atime;
  int64_t mtime;
  int64_t ctime;
  uint32_t atime_ns;
  uint32_t mtime_ns;
  uint32_t ctime_ns;
  uint32_t mode;
  uint32_t nlink;
  uint32_t uid;
  uint32_t gid;
  uint32_t rdev;
  uint32_t block_size;
  uint32_t flags;
};
static_assert(sizeof(Attr) == 88 && offsetof(Attr, mode) == 60);

struct EntryOut {
  uint64_t node_id;  ///< 0: there is no such entry, and that may be cached.
  uint64_t generation;
  uint64_t entry_valid_s;
  uint64_t attr_valid_s;
  uint32_t entry_valid_ns;
  uint32_t attr_valid_ns;
  Attr attr;
};
static_assert(sizeof(EntryOut) == 128);

struct AttrOut {
  uint64_t attr_valid_s;
  uint32_t attr_valid_ns;
  uint32_t padding;
  Attr attr;
};
static_assert(sizeof(AttrOut) == 104);

struct InitIn {
  uint32_t major;
  uint32_t minor;
  uint32_t readahead_bytes_max;
  uint32_t flags;
  uint32_t flags2;
  uint32_t unused[11];
};
static_assert(sizeof(InitIn) == 64);
/// What kernels before 7.36 send.
inline constexpr size_t kInitInShortBytes = 16;

struct InitOut {
  uint32_t major;
  uint32_t minor;
  uint32_t readahead_bytes_max;
  uint32_t flags;
  uint16_t background_count_max;
  uint16_t congestion_count;
  uint32_t write_bytes_max;
  uint32_t time_granularity_ns;
  uint16_t page_count_max;
  uint16_t map_alignment;
  uint32_t flags2;
  uint32_t stack_depth_max;
  uint16_t request_timeout_s;
  uint16_t unused[11];
};
static_assert(sizeof(InitOut) == 64 && offsetof(InitOut, flags2) == 32);

struct GetattrIn {
  uint32_t flags;
  uint32_t padding;
  uint64_t handle;
};
static_assert(sizeof(GetattrIn) == 16);

struct OpenIn {
  uint32_t flags;
  uint32_t open_flags;
};
static_assert(sizeof(OpenIn) == 8);

struct OpenOut {
  uint64_t handle;
  uint32_t open_flags;
  int32_t backing_id;
};
static_assert(sizeof(OpenOut) == 16);

/// READ, READDIR and READDIRPLUS.
struct ReadIn {
  uint64_t handle;
  uint64_t offset;
  uint32_t size;
  uint32_t read_flags;
  uint64_t lock_owner;
  uint32_t flags;
  uint32_t padding;
};
static_assert(sizeof(ReadIn) == 40);

struct GetxattrIn {
  uint32_t size;
  uint32_t padding;
};
static_assert(sizeof(GetxattrIn) == 8);

struct GetxattrOut {
  uint32_t size;
  uint32_t padding;
};
static_assert(sizeof(GetxattrOut) == 8);

struct ForgetIn {
  uint64_t lookup_count;
};
static_assert(sizeof(ForgetIn) == 8);

struct BatchForgetIn {
  uint32_t count;
  uint32_t padding;
};
static_assert(sizeof(BatchForgetIn) == 8);

struct ForgetOne {
  uint64_t node_id;
  uint64_t lookup_count;
};
static_assert(sizeof(ForgetOne) == 16);

struct InterruptIn {
  uint64_t unique;
};
static_assert(sizeof(InterruptIn) == 8);

struct StatfsOut {
  uint64_t blocks;
  uint64_t blocks_free;
  uint64_t blocks_available;
  uint64_t files;
  uint64_t files_free;
  uint32_t block_size;
  uint32_t name_length_max;
  uint32_t fragment_size;
  uint32_t padding;
  uint32_t spare[6];
};
static_assert(sizeof(StatfsOut) == 80);

/// Followed by the name, padded to 8 bytes.
struct Dirent {
  uint64_t ino;
  uint64_t next_offset;
  uint32_t name_length;
  uint32_t type;
};
static_assert(sizeof(Dirent) == 24);

struct DirentPlus {
  EntryOut entry;
  Dirent dirent;
};
static_assert(sizeof(DirentPlus) == 152);

struct NotifyInvalInodeOut {
  uint64_t node_id;
  int64_t offset;  ///< Negative: attributes only.
  int64_t size;    ///< 0: to the end.
};
static_assert(sizeof(NotifyInvalInodeOut) == 24);

/// Followed by the name and a NUL.
struct NotifyInvalEntryOut {
  uint64_t parent;
  uint32_t name_length;
  uint32_t flags;
};
static_assert(sizeof(NotifyInvalEntryOut) == 16);

/// FUSE over io_uring: the two commands of IORING_OP_URING_CMD on the /dev/fuse descriptor.
enum RingCommand : uint32_t { kRingRegister = 1, kRingCommitAndFetch = 2 };

/// The command area of the 128-byte submission entry.
struct RingCommandArea {
  uint64_t flags;
  uint64_t commit_id;
  uint16_t queue_id;
  uint8_t padding[6];
};
static_assert(sizeof(RingCommandArea) == 24);

struct RingEntryInOut {
  uint64_t flags;
  uint64_t commit_id;
  uint32_t payload_size;
  uint32_t padding;
  uint64_t reserved;
};
static_assert(sizeof(RingEntryInOut) == 32);

/// The header buffer of a ring entry: an InHeader going out, an OutHeader coming back, and the
/// request's first argument.
struct RingHeader {
  uint8_t in_out[128];
  uint8_t operation_in[128];
  RingEntryInOut entry;
};
static_assert(sizeof(RingHeader) == 288 && offsetof(RingHeader, entry) == 256);

/// Bytes of the fixed argument that follows the InHeader of `opcode` on /dev/fuse; what comes after
/// it are names. 0 for opcodes that have none or that this filesystem refuses.
size_t fixed_argument_bytes(uint32_t opcode);

}  // namespace varve::fs::fuse
