#include "fs/cache/memory_cache.h"

#include <algorithm>

namespace varve::fs {
namespace {

constexpr uint64_t kShardCountMax = 16;
// A shard below this could not hold a few of the largest chunks.
constexpr uint64_t kShardBytesMin = 4 << 20;
// Chunks that nobody asked for yet take at most one part in so many.
constexpr uint64_t kAheadShare = 4;

size_t shard_count(uint64_t bytes_max) {
  return std::clamp<uint64_t>(bytes_max / kShardBytesMin, 1, kShardCountMax);
}

}  // namespace

MemoryCache::MemoryCache(uint64_t bytes_max)
    : bytes_max_(bytes_max), shards_(shard_count(bytes_max)) {}

ChunkBytes MemoryCache::find(const Digest& id) {
  Shard& shard = shards_[shard_number(id)];
  std::lock_guard lock(shard.mutex);
  const auto found = shard.index.find(id);
  if (found == shard.index.end()) return nullptr;
  Node& node = *found->second;
  Recent& from = node.unused_by == nullptr ? shard.asked_for : shard.ahead;
  Recent& to = shard.asked_for;
  if (node.unused_by != nullptr) {
    node.unused_by->used.fetch_add(1, std::memory_order_relaxed);
    node.unused_by = nullptr;
  }
  from.bytes -= node.bytes->size();
  to.bytes += node.bytes->size();
  to.nodes.splice(to.nodes.begin(), from.nodes, found->second);
  return node.bytes;
}

bool MemoryCache::contains(const Digest& id) const {
  const Shard& shard = shards_[shard_number(id)];
  std::lock_guard lock(shard.mutex);
  return shard.index.contains(id);
}

void MemoryCache::insert(const Digest& id, ChunkBytes bytes) {
  insert({id, std::move(bytes), nullptr});
}

void MemoryCache::insert_ahead(const Digest& id, ChunkBytes bytes,
                               std::shared_ptr<AheadCounters> counters) {
  counters->chunks.fetch_add(1, std::memory_order_relaxed);
  insert({id, std::move(bytes), std::move(counters)});
}

void MemoryCache::insert(Node node) {
  if (node.bytes->size() > shard_bytes_max()) return;
  // Declared before the lock, so freed after it.
  std::vector<ChunkBytes> evicted;
  Shard& shard = shards_[shard_number(node.id)];
  std::lock_guard lock(shard.mutex);
  if (shard.index.contains(node.id)) return;
  Recent& to = node.unused_by == nullptr ? shard.asked_for : shard.ahead;
  to.bytes += node.bytes->size();
  to.nodes.push_front(std::move(node));
  shard.index.emplace(to.nodes.front().id, to.nodes.begin());
  while (shard.ahead.bytes > shard_bytes_max() / kAheadShare) {
    evict_last(shard, shard.ahead, evicted);
  }
  while (shard.asked_for.bytes + shard.ahead.bytes > shard_bytes_max()) {
    evict_last(shard, shard.asked_for, evicted);
  }
}

void MemoryCache::evict_last(Shard& shard, Recent& from, std::vector<ChunkBytes>& evicted) {
  Node& node = from.nodes.back();
  from.bytes -= node.bytes->size();
  if (node.unused_by != nullptr) node.unused_by->wasted.fetch_add(1, std::memory_order_relaxed);
  shard.index.erase(node.id);
  evicted.push_back(std::move(node.bytes));
  from.nodes.pop_back();
}

uint64_t MemoryCache::bytes_used() const {
  uint64_t sum = 0;
  for (const Shard& shard : shards_) {
    std::lock_guard lock(shard.mutex);
    sum += shard.asked_for.bytes + shard.ahead.bytes;
  }
  return sum;
}

}  // namespace varve::fs
