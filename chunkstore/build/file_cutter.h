#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"

namespace varve::chunkstore {

/// Files of at least this size are cut on their own; smaller ones share chunks.
inline constexpr uint64_t kLargeFileBytesMin = 128 << 10;
/// Smallest hole, and smallest chunk of a chunk-based file, bytes.
inline constexpr uint64_t kHoleUnitBytesMin = 64 << 10;
/// Entries that the chunk map of a file should not exceed.
inline constexpr uint64_t kHoleUnitCountMax = 65536;
/// Largest chunk that a chunk format can name: 4 KiB << 31.
inline constexpr uint64_t kHoleUnitBytesMax = uint64_t{4096} << 31;

/// The unit in which holes of a file of `size` bytes are looked for.
uint64_t hole_unit_bytes(uint64_t size);

/// `count` units from `first` on, which are holes.
struct UnitRun {
  uint32_t first = 0;
  uint32_t count = 0;
};

/// How a large file came out. Value type.
struct CutFile {
  uint64_t size = 0;          ///< Bytes of the file.
  uint64_t stored_bytes = 0;  ///< What is left without holes, padded to whole blocks.
  uint64_t chunk_count = 0;
  std::vector<UnitRun> holes;  ///< In units of hole_unit_bytes(size); empty: no holes.
};

/// Cuts one large file into chunks while its bytes arrive. What remains of the file when its holes
/// are taken out is one sequence of bytes, which FastCDC cuts from its start; the last chunk takes
/// the zeros that fill its block. Memory: ~1 MiB, whatever the size. Loop-local.
class FileCutter {
 public:
  using ChunkTaker = std::function<Status(Bytes chunk)>;

  /// @param size  Bytes that will come.
  FileCutter(uint64_t size, ChunkTaker take_chunk);

  /// The next bytes of the file. Errors: kInvalidArgument when there are more than `size` of them;
  /// what take_chunk reports.
  Status write(ByteView bytes);
  /// `count` zeros; costs nothing a byte where they become a hole.
  Status write_zeros(uint64_t count);
  /// Cuts the rest. kInvalidArgument when fewer bytes came than `size`.
  Result<CutFile> finish();

 private:
  Status check_room(uint64_t count) const;
  Status end_unit_part(uint64_t count);
  Status append_data(ByteView bytes);
  Status append_zeros(uint64_t count);
  Status cut_full_buffer();
  Status take_front(size_t size, size_t padding);

  ChunkTaker take_chunk_;
  uint64_t unit_bytes_;
  uint64_t position_ = 0;       ///< Of the next byte in the file.
  uint64_t pending_zeros_ = 0;  ///< Zeros of the current unit that may turn out to be a hole.
  bool unit_has_data_ = false;
  Bytes buffer_;  ///< Bytes from buffer_start_ on are not cut yet.
  size_t buffer_start_ = 0;
  CutFile result_;
};

}  // namespace varve::chunkstore
