#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"
#include "base/unique_fd.h"

namespace varve::chunkstore {

class SortedCursor;

/// Sorts records by byte-string keys (memcmp order, a prefix before what it begins) in bounded
/// memory: what exceeds the budget is spilled as zstd-compressed sorted runs into an unlinked file
/// and merged when it is read. Records with equal keys keep the order in which they were added.
/// The order that comes out does not depend on the budget. Loop-local.
class ExternalSorter {
 public:
  /// @param memory_bytes_max  What records may take before they are spilled.
  /// @param temp_directory    Where the unlinked file lies; made only when it is needed.
  ExternalSorter(size_t memory_bytes_max, std::string temp_directory);
  ~ExternalSorter();
  ExternalSorter(ExternalSorter&&) noexcept;
  ExternalSorter& operator=(ExternalSorter&&) noexcept;

  /// Errors: those of writing the temporary file, e.g. kNoSpace, naming its directory.
  Status add(ByteView key, ByteView value);
  /// Ends the adding and sorts. Afterwards open() may be called any number of times.
  Status finish();
  /// A cursor on the first record. The sorter must outlive it. After finish() only.
  Result<SortedCursor> open() const;

  uint64_t record_count() const { return record_count_; }
  /// Bytes that the temporary file takes: 0 when everything stayed in memory.
  uint64_t spilled_bytes() const { return file_size_; }

 private:
  friend class SortedCursor;
  struct Run {
    uint64_t offset = 0;
    uint64_t size = 0;
  };
  struct IndexEntry {
    uint64_t prefix;  ///< The key's first 8 bytes, big-endian, zero-filled.
    const uint8_t* record;
  };
  class RunWriter;

  uint8_t* allocate(size_t size);
  void sort_memory();
  Status spill();
  Status merge_runs();
  void release_memory();

  size_t memory_bytes_max_;
  std::string temp_directory_;
  std::vector<std::unique_ptr<uint8_t[]>> blocks_;
  size_t block_free_ = 0;
  uint8_t* block_position_ = nullptr;
  size_t block_bytes_ = 0;
  std::vector<IndexEntry> index_;
  std::vector<Run> runs_;
  UniqueFd file_;
  uint64_t file_size_ = 0;
  uint64_t record_count_ = 0;
};

/// Reads sorted records one after another. Loop-local; move-only.
class SortedCursor {
 public:
  SortedCursor(SortedCursor&&) noexcept;
  SortedCursor& operator=(SortedCursor&&) noexcept;
  ~SortedCursor();

  /// False after the last record.
  bool valid() const { return is_valid_; }
  /// Both live until the next call of next().
  ByteView key() const { return key_; }
  ByteView value() const { return value_; }
  Status next();

 private:
  friend class ExternalSorter;
  struct RunReader;

  explicit SortedCursor(const ExternalSorter& sorter);
  Status start();
  void show_memory_record();
  void show_top();

  const ExternalSorter* sorter_;
  size_t memory_position_ = 0;
  std::vector<std::unique_ptr<RunReader>> heap_;
  bool is_valid_ = false;
  ByteView key_;
  ByteView value_;
};

}  // namespace varve::chunkstore
