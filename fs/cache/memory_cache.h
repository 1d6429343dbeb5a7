#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "base/bytes.h"
#include "base/hash.h"

namespace varve::fs {

/// The bytes of one verified chunk, shared by all who read them. Immutable.
using ChunkBytes = std::shared_ptr<const Bytes>;

/// Decompressed chunks by id, least recently used out first, at most `bytes_max` in all.
/// Thread-safe: sharded by id.
class MemoryCache {
 public:
  explicit MemoryCache(uint64_t bytes_max);

  /// Nothing when the chunk is not here. Cost: one short lock, no system call.
  ChunkBytes find(const Digest& id);
  /// Keeps `bytes` (not null) unless they are larger than a shard's share.
  void insert(const Digest& id, ChunkBytes bytes);
  uint64_t bytes_used() const;
  uint64_t bytes_max() const { return bytes_max_; }

 private:
  struct Node {
    Digest id;
    ChunkBytes bytes;
  };
  struct Shard {
    mutable std::mutex mutex;
    std::list<Node> recent;  // Most recently used first.
    std::unordered_map<Digest, std::list<Node>::iterator, DigestHash> index;
    uint64_t bytes_used = 0;
  };

  Shard& shard(const Digest& id) { return shards_[id.bytes[31] % shards_.size()]; }

  const uint64_t bytes_max_;
  std::vector<Shard> shards_;
};

}  // namespace varve::fs
