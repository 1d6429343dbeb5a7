#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "chunkstore/store/store.h"

namespace varve::chunkstore {

inline constexpr int64_t kGraceDefaultS = 86'400;
/// Temporary files of writers that died are removed when they are this old.
inline constexpr int64_t kTemporaryAgeS = 86'400;

struct GcOptions {
  /// Seconds between condemning an object and deleting it. With 0 both happen in one run: only for
  /// a store that no builder of another version uses.
  int64_t grace_s = kGraceDefaultS;
  /// Finds out what would be done; writes nothing.
  bool is_dry_run = false;
  /// CLOCK_MONOTONIC in seconds, for tests.
  std::function<double()> monotonic_s;
};

struct GcResult {
  uint64_t live_count = 0;  ///< Objects that something needs.
  uint64_t live_bytes = 0;
  uint64_t condemned_count = 0;  ///< Unneeded objects that got a tombstone in this run.
  uint64_t condemned_bytes = 0;
  uint64_t waiting_count = 0;  ///< Unneeded objects whose grace period goes on.
  uint64_t waiting_bytes = 0;
  uint64_t deleted_count = 0;
  uint64_t deleted_bytes = 0;
  uint64_t revived_count = 0;  ///< Condemned objects that are needed again.
  uint64_t expired_lease_count = 0;
  uint64_t temporary_count = 0;  ///< Left-over temporary files removed.
  /// Keys that something needs and that are not there: the store is damaged (`verify`).
  std::vector<std::string> missing;
};

/// Collects garbage in two phases (varve-store(5), GARBAGE COLLECTION): marks what refs and leases
/// reach, writes a tombstone for every pack, layer, image and placement that they do not, and
/// deletes those whose tombstone is due after reading leases and refs once more.
///
/// May run beside builders, readers and other collectors, and be stopped at any point: the next run
/// goes on. It deletes nothing when it cannot tell what is needed: a ref, lease, image, or the
/// header of a layer or placement in use that cannot be parsed is an error that names it.
Result<GcResult> collect_garbage(Store& store, const GcOptions& options);

}  // namespace varve::chunkstore
