#pragma once

#include <cstdint>
#include <vector>

#include "base/hash.h"

namespace varve::chunkstore {

inline constexpr uint32_t kNoPack = UINT32_MAX;
inline constexpr uint32_t kNoChunk = UINT32_MAX;

/// A chunk that a build knows. It has a place once `pack` is set.
struct KnownChunk {
  Digest id;
  uint64_t first_ordinal = 0;  ///< The first of the build's chunks, so far, with this content.
  uint32_t raw_size = 0;
  uint32_t pack = kNoPack;  ///< Number of the pack in the build.
  uint32_t offset = 0;
  uint32_t stored_size = 0;
  bool is_raw = false;

  bool has_place() const { return pack != kNoPack; }
};

/// The chunks of a build by id: ~70 bytes each. Not thread-safe.
class ChunkTable {
 public:
  /// The number of the chunk, or kNoChunk.
  uint32_t find(const Digest& id) const {
    if (slots_.empty()) return kNoChunk;
    for (size_t slot = home(id);; slot = (slot + 1) & mask()) {
      if (slots_[slot] == kNoChunk || chunks_[slots_[slot]].id == id) return slots_[slot];
    }
  }
  /// Adds a chunk that is not there yet; returns its number.
  uint32_t insert(const KnownChunk& chunk) {
    if (chunks_.size() * 2 >= slots_.size()) grow();
    const auto number = static_cast<uint32_t>(chunks_.size());
    chunks_.push_back(chunk);
    place(number);
    return number;
  }
  KnownChunk& at(uint32_t number) { return chunks_[number]; }
  const KnownChunk& at(uint32_t number) const { return chunks_[number]; }
  size_t count() const { return chunks_.size(); }

 private:
  size_t mask() const { return slots_.size() - 1; }
  size_t home(const Digest& id) const { return DigestHash()(id) & mask(); }
  void place(uint32_t number) {
    size_t slot = home(chunks_[number].id);
    while (slots_[slot] != kNoChunk) slot = (slot + 1) & mask();
    slots_[slot] = number;
  }
  void grow() {
    slots_.assign(slots_.empty() ? 1024 : slots_.size() * 2, kNoChunk);
    for (uint32_t number = 0; number < chunks_.size(); ++number) place(number);
  }

  std::vector<KnownChunk> chunks_;
  std::vector<uint32_t> slots_;
};

}  // namespace varve::chunkstore
