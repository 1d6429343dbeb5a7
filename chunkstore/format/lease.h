#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"

/// Leases, tombstones and the store's marker: canonical JSON. Defined by varve-store(5).
namespace varve::chunkstore {

inline constexpr size_t kLeaseBytesMax = 64 << 20;
inline constexpr size_t kLeaseObjectCountMax = 500'000;
inline constexpr size_t kTombstoneBytesMax = 4096;
inline constexpr size_t kStoreMarkerBytesMax = 4096;

/// `leases/<uuid>`: objects that garbage collection leaves alone, with all that they name, until
/// `expires_s` by the store's clock.
struct LeaseRecord {
  int64_t expires_s = 0;
  std::vector<std::string> objects;  ///< Keys, sorted.
};
Bytes encode_lease(const LeaseRecord& lease);
Result<LeaseRecord> parse_lease(ByteView bytes);

/// `tombstones/<key>`: the object under `key` was found unreferenced and may be deleted from
/// `due_s` on, unless `settled_s` is set: then the object was deleted, or found alive again, at
/// that time.
struct TombstoneRecord {
  int64_t due_s = 0;
  int64_t settled_s = 0;  ///< 0 while the sentence stands.
};
Bytes encode_tombstone(const TombstoneRecord& tombstone);
Result<TombstoneRecord> parse_tombstone(ByteView bytes);

/// `varve-store`. `id` is a random UUID that names the store in caches.
struct StoreMarker {
  std::string id;
};
Bytes encode_store_marker(const StoreMarker& marker);
Result<StoreMarker> parse_store_marker(ByteView bytes);

/// A random version 4 UUID (RFC 4122) in lower case.
std::string random_uuid();
bool is_uuid(std::string_view text);

}  // namespace varve::chunkstore
