#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "base/bytes.h"
#include "base/hash.h"

namespace varve::fs {

/// Memory for one chunk. Its bytes are undefined at first: who makes it fills all of it.
class ChunkBuffer {
 public:
  explicit ChunkBuffer(size_t size) : size_(size), bytes_(new uint8_t[size]) {}

  size_t size() const { return size_; }
  ByteView view() const { return {bytes_.get(), size_}; }
  MutableByteView view() { return {bytes_.get(), size_}; }

 private:
  size_t size_;
  std::unique_ptr<uint8_t[]> bytes_;
};

/// The bytes of one verified chunk, shared by all who read them. Immutable.
using ChunkBytes = std::shared_ptr<const ChunkBuffer>;

/// What became of the chunks that were read ahead; they only grow. Thread-safe.
struct AheadCounters {
  std::atomic<uint64_t> chunks{0};  ///< Brought before anybody asked for them.
  std::atomic<uint64_t> used{0};    ///< Of them: somebody asked for them later.
  std::atomic<uint64_t> wasted{0};  ///< Of them: dropped before anybody asked for them.
};

/// Decompressed chunks by id, at most `bytes_max` in all, least recently used out first; those that
/// were read ahead and not asked for since are at most a quarter. Thread-safe: sharded by id.
class MemoryCache {
 public:
  explicit MemoryCache(uint64_t bytes_max);

  /// Nothing when the chunk is not here. Cost: one short lock, no system call.
  ChunkBytes find(const Digest& id);
  /// Whether find() would find it; changes nothing.
  bool contains(const Digest& id) const;
  /// Keeps `bytes` (not null) unless they are larger than a shard's share.
  void insert(const Digest& id, ChunkBytes bytes);
  /// The same for a chunk that nobody asked for yet; `counters` learn what becomes of it.
  void insert_ahead(const Digest& id, ChunkBytes bytes, std::shared_ptr<AheadCounters> counters);
  uint64_t bytes_used() const;
  uint64_t bytes_max() const { return bytes_max_; }

 private:
  struct Node {
    Digest id;
    ChunkBytes bytes;
    std::shared_ptr<AheadCounters> unused_by;  // Null once somebody asked for the chunk.
  };
  /// Most recently used first.
  struct Recent {
    std::list<Node> nodes;
    uint64_t bytes = 0;
  };
  struct Shard {
    mutable std::mutex mutex;
    Recent asked_for;
    Recent ahead;
    std::unordered_map<Digest, std::list<Node>::iterator, DigestHash> index;
  };

  size_t shard_number(const Digest& id) const { return id.bytes[31] % shards_.size(); }
  uint64_t shard_bytes_max() const { return bytes_max_ / shards_.size(); }
  void insert(Node node);
  static void evict_last(Shard& shard, Recent& from, std::vector<ChunkBytes>& evicted);

  const uint64_t bytes_max_;
  std::vector<Shard> shards_;
};

}  // namespace varve::fs
