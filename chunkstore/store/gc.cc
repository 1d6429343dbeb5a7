#include "chunkstore/store/gc.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>

#include "base/clock.h"
#include "chunkstore/format/image.h"
#include "chunkstore/format/keys.h"
#include "chunkstore/format/lease.h"
#include "chunkstore/format/ref.h"
#include "chunkstore/store/closure.h"
#include "chunkstore/store/lease.h"

namespace varve::chunkstore {
namespace {

// What may be condemned, in the order of deletion: what names comes before what is named, so that a
// run that stops half-way leaves nothing that names a thing that is gone.
constexpr std::string_view kCollectedPrefixes[] = {"images/", "layers/", "placements/", "packs/"};

/// Deletes only this long after roots were read: half of what builders rely on.
constexpr double kDeletionBatchS = kDeletionWindowS / 2.0;

double monotonic_now_s() {
  return static_cast<double>(monotonic_ns()) * 1e-9;
}

bool is_not_found(const Error& error) {
  return error.code() == ErrorCode::kNotFound;
}

/// What refs and leases reach. Immutable objects are read once for all rounds.
class Marker {
 public:
  explicit Marker(Store& store) : store_(store) {}

  /// Reads leases, then refs, then all that they reach. The order matters: a builder writes its ref
  /// before it takes its lease away.
  Status mark(int64_t now_s);

  /// Adds an object that nothing needs but that stays for now, and all that it names. One that is
  /// damaged names nothing.
  void mark_kept(const std::string& key) { (void)mark_key(key); }

  bool is_live(const std::string& key) const { return live_.count(key) != 0; }
  const std::set<std::string>& missing() const { return missing_; }
  const std::vector<std::string>& expired_leases() const { return expired_leases_; }

 private:
  Status mark_leases(int64_t now_s);
  Status mark_refs();
  Status mark_key(const std::string& key);
  Status mark_image(const Digest& id);
  Status mark_layer(const Digest& layer);
  Result<std::vector<std::string>> list(std::string_view prefix);

  Store& store_;
  std::set<std::string> live_;
  std::set<std::string> missing_;
  std::vector<std::string> expired_leases_;
  std::unordered_map<Digest, std::vector<Digest>, DigestHash> layers_of_image_;
  std::unordered_map<Digest, std::vector<Digest>, DigestHash> packs_of_placement_;
};

Result<std::vector<std::string>> Marker::list(std::string_view prefix) {
  std::vector<std::string> keys;
  VARVE_TRY(store_.list(
      prefix,
      [&](const std::string& key, const ObjectInfo&) -> Status {
        keys.push_back(key);
        return {};
      },
      kNoDeadline));
  return keys;
}

Status Marker::mark(int64_t now_s) {
  live_.clear();
  missing_.clear();
  expired_leases_.clear();
  VARVE_TRY(mark_leases(now_s));
  return mark_refs();
}

Status Marker::mark_leases(int64_t now_s) {
  VARVE_ASSIGN(const auto keys, list("leases/"));
  for (const std::string& key : keys) {
    const auto bytes = store_.get(key, kLeaseBytesMax, kNoDeadline);
    if (!bytes && is_not_found(bytes.error())) continue;  // released since it was listed
    if (!bytes) return tl::unexpected(bytes.error());
    auto lease = parse_lease(*bytes);
    if (!lease) return fail(std::move(lease).error(), quoted(key));
    // The margin is what a renewal may take: see Lease.
    if (lease->expires_s + kDeletionWindowS <= now_s) {
      expired_leases_.push_back(key);
      continue;
    }
    for (const std::string& object : lease->objects) VARVE_TRY(mark_key(object));
  }
  return {};
}

Status Marker::mark_refs() {
  VARVE_ASSIGN(const auto keys, list("refs/"));
  for (const std::string& key : keys) {
    const auto bytes = store_.get(key, kPointerBytes, kNoDeadline);
    if (!bytes && is_not_found(bytes.error())) continue;
    if (!bytes) return tl::unexpected(bytes.error());
    auto id = parse_pointer(*bytes);
    if (!id) return fail(std::move(id).error(), quoted(key));
    VARVE_TRY(mark_image(*id));
  }
  return {};
}

/// A key of a lease: with what it names, as far as that is there already.
Status Marker::mark_key(const std::string& key) {
  live_.insert(key);
  const auto digest = digest_of_key(key);
  if (!digest) return {};
  std::set<std::string> missing = missing_;
  if (key == image_key(*digest)) VARVE_TRY(mark_image(*digest));
  if (key == layer_key(*digest)) VARVE_TRY(mark_layer(*digest));
  // A build lists what it is about to publish.
  missing_ = std::move(missing);
  return {};
}

Status Marker::mark_image(const Digest& id) {
  const std::string key = image_key(id);
  live_.insert(key);
  auto layers = layers_of_image_.find(id);
  if (layers == layers_of_image_.end()) {
    const auto bytes = store_.get(key, kImageJsonBytesMax, kNoDeadline);
    if (!bytes && is_not_found(bytes.error())) {
      missing_.insert(key);
      return {};
    }
    if (!bytes) return tl::unexpected(bytes.error());
    auto image = parse_image(*bytes);
    if (!image) return fail(std::move(image).error(), quoted(key));
    layers = layers_of_image_.emplace(id, image->layers).first;
  }
  for (const Digest& layer : layers->second) VARVE_TRY(mark_layer(layer));
  return {};
}

Status Marker::mark_layer(const Digest& layer) {
  const std::string key = layer_key(layer);
  const std::string current_key = current_placement_key(layer);
  live_.insert(key);
  live_.insert(current_key);
  const auto header = read_layer_header(store_, layer, kNoDeadline);
  if (!header && !is_not_found(header.error())) return tl::unexpected(header.error());
  if (!header) missing_.insert(key);
  const auto placement = read_current_placement(store_, layer, kNoDeadline);
  if (!placement && !is_not_found(placement.error())) return tl::unexpected(placement.error());
  if (!placement) missing_.insert(current_key);
  if (!header || !placement) return {};
  const std::string placement_object_key = placement_key(layer, *placement);
  live_.insert(placement_object_key);
  auto packs = packs_of_placement_.find(*placement);
  if (packs == packs_of_placement_.end()) {
    auto read = read_placement_packs(store_, *header, layer, *placement, kNoDeadline);
    if (!read && is_not_found(read.error())) {
      missing_.insert(placement_object_key);
      return {};
    }
    if (!read) return tl::unexpected(std::move(read).error());
    packs = packs_of_placement_.emplace(*placement, std::move(*read)).first;
  }
  for (const Digest& pack : packs->second) live_.insert(pack_key(pack));
  return {};
}

struct Candidate {
  std::string key;
  uint64_t size = 0;
};

class Collector {
 public:
  Collector(Store& store, const GcOptions& options)
      : store_(store),
        options_(options),
        monotonic_s_(options.monotonic_s ? options.monotonic_s : monotonic_now_s),
        marker_(store),
        named_(store) {}

  Result<GcResult> run();

 private:
  Status read_tombstones();
  Status judge(const std::string& key, uint64_t size);
  Status settle_others();
  void spare_named();
  Status delete_due();
  Result<bool> delete_one(const Candidate& candidate);
  Status condemn_unneeded();
  void count_condemned(const Candidate& candidate);
  Status settle(const std::string& key);
  Status clean_up();
  Status write_tombstone(const std::string& key, const TombstoneRecord& tombstone) {
    return store_.replace(tombstone_key(key), encode_tombstone(tombstone), kNoDeadline);
  }

  Store& store_;
  const GcOptions& options_;
  const std::function<double()> monotonic_s_;
  Marker marker_;
  int64_t now_s_ = 0;
  std::map<std::string, TombstoneRecord> tombstones_;  // by the key they condemn
  std::vector<Candidate> unneeded_;                    // and not condemned yet
  std::vector<Candidate> due_;
  std::vector<std::string> kept_;  // condemned, and not due
  Marker named_;                   // by what is kept
  GcResult result_;
};

Result<GcResult> Collector::run() {
  VARVE_ASSIGN(now_s_, store_.now_s(kNoDeadline));
  VARVE_TRY(marker_.mark(now_s_));
  result_.missing.assign(marker_.missing().begin(), marker_.missing().end());
  VARVE_TRY(read_tombstones());
  for (const std::string_view prefix : kCollectedPrefixes) {
    std::vector<Candidate> objects;
    VARVE_TRY(store_.list(
        prefix,
        [&](const std::string& key, const ObjectInfo& info) -> Status {
          objects.push_back({key, info.size});
          return {};
        },
        kNoDeadline));
    for (const Candidate& object : objects) VARVE_TRY(judge(object.key, object.size));
  }
  VARVE_TRY(settle_others());
  spare_named();
  if (options_.is_dry_run) {
    if (options_.grace_s == 0) {
      std::ranges::copy_if(unneeded_, std::back_inserter(due_), [&](const Candidate& candidate) {
        return !named_.is_live(candidate.key);
      });
    }
    for (const Candidate& candidate : due_) {
      ++result_.deleted_count;
      result_.deleted_bytes += candidate.size;
    }
    for (const Candidate& candidate : unneeded_) count_condemned(candidate);
  } else {
    // On a full disk these make room for the tombstones.
    VARVE_TRY(clean_up());
    VARVE_TRY(delete_due());
    VARVE_TRY(condemn_unneeded());
  }
  return std::move(result_);
}

/// Without a grace period what was condemned is deleted at once, before more room is needed.
Status Collector::condemn_unneeded() {
  for (size_t next = 0; next < unneeded_.size();) {
    due_.clear();
    Status condemned;
    for (; next < unneeded_.size(); ++next) {
      const Candidate& candidate = unneeded_[next];
      condemned = write_tombstone(candidate.key, {now_s_ + options_.grace_s, 0});
      if (!condemned) break;
      count_condemned(candidate);
      if (options_.grace_s == 0 && !named_.is_live(candidate.key)) due_.push_back(candidate);
    }
    const uint64_t deleted_count = result_.deleted_count;
    VARVE_TRY(delete_due());
    const bool has_room = result_.deleted_count > deleted_count;
    if (!condemned && !(condemned.error().code() == ErrorCode::kNoSpace && has_room)) {
      return condemned;
    }
  }
  return {};
}

void Collector::count_condemned(const Candidate& candidate) {
  ++result_.condemned_count;
  result_.condemned_bytes += candidate.size;
}

Status Collector::read_tombstones() {
  constexpr std::string_view kPrefix = "tombstones/";
  std::vector<std::string> keys;
  VARVE_TRY(store_.list(
      kPrefix,
      [&](const std::string& key, const ObjectInfo&) -> Status {
        keys.push_back(key);
        return {};
      },
      kNoDeadline));
  for (const std::string& key : keys) {
    const auto bytes = store_.get(key, kTombstoneBytesMax, kNoDeadline);
    if (!bytes && is_not_found(bytes.error())) continue;
    if (!bytes) return tl::unexpected(bytes.error());
    auto tombstone = parse_tombstone(*bytes);
    if (!tombstone) return fail(std::move(tombstone).error(), quoted(key));
    tombstones_.emplace(key.substr(kPrefix.size()), *tombstone);
  }
  return {};
}

/// Decides over one object that is there; takes its tombstone out of those left for
/// settle_others().
Status Collector::judge(const std::string& key, uint64_t size) {
  const auto found = tombstones_.find(key);
  const bool has_tombstone = found != tombstones_.end();
  const TombstoneRecord tombstone = has_tombstone ? found->second : TombstoneRecord{};
  const bool is_standing = has_tombstone && tombstone.settled_s == 0;
  const bool is_settling =
      has_tombstone && !is_standing && now_s_ <= tombstone.settled_s + kDeletionWindowS;
  if (marker_.is_live(key)) {
    ++result_.live_count;
    result_.live_bytes += size;
    if (is_standing) {
      ++result_.revived_count;
      tombstones_.erase(found);
      return settle(key);
    }
    return {};
  }
  // A pardon that a collector may not have seen yet is not taken back at once.
  if (is_settling) {
    kept_.push_back(key);
    ++result_.waiting_count;
    result_.waiting_bytes += size;
    return {};
  }
  if (has_tombstone) tombstones_.erase(found);
  if (!is_standing) {
    unneeded_.push_back({key, size});
  } else if (tombstone.due_s <= now_s_) {
    due_.push_back({key, size});
  } else {
    kept_.push_back(key);
    ++result_.waiting_count;
    result_.waiting_bytes += size;
  }
  return {};
}

/// What was condemned first may be named by what was condemned later, and is still there: it waits
/// for that.
void Collector::spare_named() {
  if (options_.grace_s != 0) {
    for (const Candidate& candidate : unneeded_) kept_.push_back(candidate.key);
  }
  for (const std::string& key : kept_) named_.mark_kept(key);
  std::erase_if(due_, [&](const Candidate& candidate) {
    if (!named_.is_live(candidate.key)) return false;
    ++result_.waiting_count;
    result_.waiting_bytes += candidate.size;
    return true;
  });
}

/// Tombstones of objects that are gone, or that were settled: they go once nobody can act on them.
Status Collector::settle_others() {
  for (const auto& [key, tombstone] : tombstones_) {
    if (tombstone.settled_s == 0) {
      VARVE_TRY(settle(key));
    } else if (now_s_ > tombstone.settled_s + kDeletionWindowS && !options_.is_dry_run) {
      const auto status = store_.remove(tombstone_key(key), kNoDeadline);
      if (!status && !is_not_found(status.error())) return status;
    }
  }
  return {};
}

Status Collector::settle(const std::string& key) {
  if (options_.is_dry_run) return {};
  // The time now, not that of the run's start: builders count from it.
  VARVE_ASSIGN(const int64_t now, store_.now_s(kNoDeadline));
  return write_tombstone(key, {now, now});
}

Status Collector::delete_due() {
  for (size_t next = 0; next < due_.size();) {
    const double read_at_s = monotonic_s_();
    VARVE_ASSIGN(const int64_t now, store_.now_s(kNoDeadline));
    VARVE_TRY(marker_.mark(now));
    const size_t first = next;
    while (next < due_.size() && monotonic_s_() - read_at_s < kDeletionBatchS) {
      VARVE_ASSIGN(const bool is_deleted, delete_one(due_[next]));
      if (is_deleted) {
        ++result_.deleted_count;
        result_.deleted_bytes += due_[next].size;
      }
      ++next;
    }
    if (next == first) {
      return fail(
          ErrorCode::kUnavailable,
          fmt::format("reading leases and refs takes longer than {} seconds: nothing can be "
                      "deleted safely",
                      kDeletionBatchS));
    }
  }
  return {};
}

Result<bool> Collector::delete_one(const Candidate& candidate) {
  if (marker_.is_live(candidate.key)) {
    ++result_.revived_count;
    VARVE_TRY(settle(candidate.key));
    return false;
  }
  // Another collector may have settled it meanwhile.
  const auto bytes = store_.get(tombstone_key(candidate.key), kTombstoneBytesMax, kNoDeadline);
  if (!bytes && is_not_found(bytes.error())) return false;
  if (!bytes) return tl::unexpected(bytes.error());
  VARVE_ASSIGN(const TombstoneRecord tombstone, parse_tombstone(*bytes));
  if (tombstone.settled_s != 0) return false;
  const auto removed = store_.remove(candidate.key, kNoDeadline);
  if (!removed && !is_not_found(removed.error())) return tl::unexpected(removed.error());
  VARVE_TRY(settle(candidate.key));
  return removed.has_value();
}

Status Collector::clean_up() {
  for (const std::string& key : marker_.expired_leases()) {
    const auto status = store_.remove(key, kNoDeadline);
    if (!status && !is_not_found(status.error())) return status;
    ++result_.expired_lease_count;
  }
  VARVE_ASSIGN(result_.temporary_count,
               store_.remove_stale_temporaries(kTemporaryAgeS, kNoDeadline));
  return {};
}

}  // namespace

Result<GcResult> collect_garbage(Store& store, const GcOptions& options) {
  return Collector(store, options).run();
}

}  // namespace varve::chunkstore
