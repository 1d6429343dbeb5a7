#include <algorithm>

#include "chunkstore/build/internal/pack_reuse.h"
#include "chunkstore/format/keys.h"
#include "chunkstore/store/closure.h"

namespace varve::chunkstore {
namespace {

// Bounds the lease: 256 GiB of stored chunks.
constexpr size_t kReusedPackCountMax = 4096;

}  // namespace

Result<std::optional<ReusedChunk>> PackReuse::find(const Digest& chunk) {
  if (!index_) return std::nullopt;
  const auto pack = index_->find_pack(chunk);
  if (!pack) return std::nullopt;
  return find_in(*pack, chunk);
}

Result<std::optional<ReusedChunk>> PackReuse::find_in(const Digest& pack, const Digest& chunk) {
  std::lock_guard lock(mutex_);
  auto found = packs_.find(pack);
  if (found == packs_.end()) {
    if (looked_into_.size() >= kReusedPackCountMax && !looked_into_.contains(pack)) {
      return std::nullopt;
    }
    looked_into_.insert(pack);
    VARVE_ASSIGN(Entries entries, look_into(pack));
    if (entry_count_ + entries.size() > entry_count_max_) {
      packs_.clear();
      entry_count_ = 0;
    }
    entry_count_ += entries.size();
    found = packs_.emplace(pack, std::move(entries)).first;
  }
  const Entries& entries = found->second;
  const auto entry = std::ranges::lower_bound(entries, chunk, {}, &PackEntry::id);
  if (entry == entries.end() || entry->id != chunk) return std::nullopt;
  return ReusedChunk{pack, *entry};
}

Result<PackReuse::Entries> PackReuse::look_into(const Digest& pack) {
  const std::string key = pack_key(pack);
  // This order is what makes it safe: lease, then tombstone, then the pack itself.
  VARVE_TRY(lease_.add({&key, 1}));
  VARVE_ASSIGN(const int64_t now, store_.now_s(kNoDeadline));
  VARVE_ASSIGN(const Sentence sentence, read_sentence(store_, key, now));
  if (sentence != Sentence::kNone) return Entries();
  auto entries = read_pack_index(store_, pack, kNoDeadline);
  if (!entries) {
    const ErrorCode code = entries.error().code();
    if (code == ErrorCode::kNotFound || code == ErrorCode::kCorruption ||
        code == ErrorCode::kUnsupported) {
      return Entries();
    }
    return tl::unexpected(std::move(entries).error());
  }
  std::ranges::sort(*entries, {}, &PackEntry::id);
  return std::move(*entries);
}

}  // namespace varve::chunkstore
