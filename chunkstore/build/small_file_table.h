#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/hash.h"
#include "chunkstore/build/spool.h"

namespace varve::chunkstore {

/// Finds small files with the same bytes: SHA-256 of a file → its first block. Whole digests are
/// compared; they lie in a spool, so that an entry costs ~13 bytes of memory. Loop-local.
class SmallFileTable {
 public:
  explicit SmallFileTable(const std::string& temp_directory);
  /// Makes room for `count` files at once; without it the table doubles when it is three quarters
  /// full, holding old and new for a moment.
  void reserve(uint64_t count);

  /// The block of the file that was inserted with `digest`.
  Result<std::optional<uint32_t>> find(const Digest& digest) const;
  /// `digest` is not in the table.
  Status insert(const Digest& digest, uint32_t block);

 private:
  struct Slot {
    uint32_t tag = 0;  ///< First bytes of the digest; also where the probing starts.
    uint32_t index_plus_1 = 0;
  };
  void place(Slot slot);
  void resize(size_t slot_count);

  std::vector<Slot> slots_;  ///< A power of two of them, at most three quarters used.
  uint32_t count_ = 0;
  Spool records_;  ///< Digest and u32 block, each.
};

}  // namespace varve::chunkstore
