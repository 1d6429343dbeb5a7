#include "fs/cache/memory_cache.h"

#include <algorithm>

namespace varve::fs {
namespace {

constexpr uint64_t kShardCountMax = 16;
// A shard below this could not hold a few of the largest chunks.
constexpr uint64_t kShardBytesMin = 4 << 20;

size_t shard_count(uint64_t bytes_max) {
  return std::clamp<uint64_t>(bytes_max / kShardBytesMin, 1, kShardCountMax);
}

}  // namespace

MemoryCache::MemoryCache(uint64_t bytes_max)
    : bytes_max_(bytes_max), shards_(shard_count(bytes_max)) {}

ChunkBytes MemoryCache::find(const Digest& id) {
  Shard& shard = this->shard(id);
  std::lock_guard lock(shard.mutex);
  const auto found = shard.index.find(id);
  if (found == shard.index.end()) return nullptr;
  shard.recent.splice(shard.recent.begin(), shard.recent, found->second);
  return found->second->bytes;
}

void MemoryCache::insert(const Digest& id, ChunkBytes bytes) {
  const uint64_t shard_bytes_max = bytes_max_ / shards_.size();
  if (bytes->size() > shard_bytes_max) return;
  // Declared before the lock, so freed after it.
  std::vector<ChunkBytes> evicted;
  Shard& shard = this->shard(id);
  std::lock_guard lock(shard.mutex);
  if (shard.index.contains(id)) return;
  shard.bytes_used += bytes->size();
  shard.recent.push_front({id, std::move(bytes)});
  shard.index.emplace(id, shard.recent.begin());
  while (shard.bytes_used > shard_bytes_max) {
    Node& oldest = shard.recent.back();
    shard.bytes_used -= oldest.bytes->size();
    shard.index.erase(oldest.id);
    evicted.push_back(std::move(oldest.bytes));
    shard.recent.pop_back();
  }
}

uint64_t MemoryCache::bytes_used() const {
  uint64_t sum = 0;
  for (const Shard& shard : shards_) {
    std::lock_guard lock(shard.mutex);
    sum += shard.bytes_used;
  }
  return sum;
}

}  // namespace varve::fs
