#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "chunkstore/build/chunk_index.h"
#include "chunkstore/format/pack.h"
#include "chunkstore/store/lease.h"

namespace varve::chunkstore {

struct ReusedChunk {
  Digest pack;
  PackEntry entry;
};

/// Finds chunks that lie in the store already and may be relied on: their pack is in the build's
/// lease, was not condemned after that, exists, and its own index names the chunk. Thread-safe; one
/// pack at a time is looked into. Memory: kEntryCountMax index entries of 48 bytes, or those of one
/// pack; further ones take the place of those before.
class PackReuse {
 public:
  static constexpr size_t kEntryCountMax = 1'000'000;

  /// `store` and `lease` must outlive it. @param index  May be null: then only offered packs are
  /// used.
  PackReuse(Store& store, Lease& lease, std::unique_ptr<ChunkIndex> index,
            size_t entry_count_max = kEntryCountMax)
      : store_(store), lease_(lease), index_(std::move(index)), entry_count_max_(entry_count_max) {}

  /// Errors: the store's; a missing, damaged or condemned pack is not one.
  Result<std::optional<ReusedChunk>> find(const Digest& chunk);
  /// The chunk in that very pack.
  Result<std::optional<ReusedChunk>> find_in(const Digest& pack, const Digest& chunk);

 private:
  // Sorted by id; empty when the pack is not to be used.
  using Entries = std::vector<PackEntry>;
  Result<Entries> look_into(const Digest& pack);

  Store& store_;
  Lease& lease_;
  const std::unique_ptr<ChunkIndex> index_;
  const size_t entry_count_max_;
  std::mutex mutex_;                                    // what follows
  std::unordered_set<Digest, DigestHash> looked_into_;  // ever: these are in the lease
  std::unordered_map<Digest, Entries, DigestHash> packs_;
  size_t entry_count_ = 0;  // of packs_
};

}  // namespace varve::chunkstore
