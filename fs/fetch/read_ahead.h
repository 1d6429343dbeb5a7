#pragma once

#include <array>
#include <cstdint>
#include <mutex>

namespace varve::fs {

/// `count` chunks of a layer, from `first` on.
struct ChunkRange {
  uint64_t first = 0;
  uint64_t count = 0;

  bool operator==(const ChunkRange&) const = default;
};

/// Decides which chunks of one layer to bring before they are asked for. It finds the readers that
/// go through the image in order, a few at a time, whatever else is read in between. The files of
/// an image lie in the order of their paths, so a walk over a tree is such a reader, too. No I/O,
/// no clock. Thread-safe.
class ReadAhead {
 public:
  /// A reader is followed from so many chunks in a row on.
  static constexpr uint64_t kProvenCount = 4;

  /// @param chunk_count  Of the layer.
  explicit ReadAhead(uint64_t chunk_count) : chunk_count_(chunk_count) {}

  /// Chunks `first` … `last` are being read.
  ///
  /// @param distance_max  How many chunks to be ahead of a reader at most; 0 = no read-ahead. It is
  ///                      never more than half of what the reader read in a row, so that a guess
  ///                      that turns out wrong wastes less than the guesses before it were worth.
  /// @return  What to bring now; count 0 = nothing.
  ChunkRange on_read(uint64_t first, uint64_t last, uint64_t distance_max);

  /// Whether a reader that `chunk` was returned for still has it before it.
  bool is_wanted(uint64_t chunk) const;

 private:
  /// One that reads in order, or may turn out to.
  struct Reader {
    uint64_t current = 0;    // The last chunk it read.
    uint64_t run_count = 0;  // Chunks in a row; 0 = the slot is free.
    uint64_t ahead_end = 0;  // What was returned for it ends before this chunk.
    uint64_t last_read = 0;  // When, counted in reads of the layer.
  };
  static constexpr size_t kReaderCount = 8;

  Reader* find(uint64_t first);
  Reader& least_useful();
  static bool is_proven(const Reader& reader) { return reader.run_count >= kProvenCount; }

  const uint64_t chunk_count_;
  mutable std::mutex mutex_;
  std::array<Reader, kReaderCount> readers_;
  uint64_t read_count_ = 0;
};

}  // namespace varve::fs
