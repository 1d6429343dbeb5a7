#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/error.h"

namespace varve::chunkstore {

struct ObjectInfo {
  uint64_t size = 0;       ///< Bytes.
  int64_t modified_s = 0;  ///< By the store's clock, seconds since 1970.
};

/// An object being written in pieces; nothing is visible in the store before publish().
/// Destroying it unpublished leaves nothing behind. Loop-local.
class ObjectWriter {
 public:
  virtual ~ObjectWriter() = default;
  virtual Status write(ByteView bytes) = 0;
  /// Makes the object durable and visible as `key`. An object that exists already under `key` is
  /// kept and this one dropped (keys written this way are hashes of their content).
  virtual Status publish(std::string_view key) = 0;
};

/// A store of objects under keys like `packs/ab/ab12…` (varve-store(5)). Content from a store is
/// not trusted by anyone who reads it. Thread-safe.
///
/// Errors: kNotFound (no such object), kTimedOut, kUnavailable (may pass), kPermission, kNoSpace.
class Store {
 public:
  virtual ~Store() = default;

  /// The URL that opened it, without credentials.
  virtual const std::string& url() const = 0;
  /// The UUID that the store was made with: names it in local caches, whatever its URL.
  virtual const std::string& id() const = 0;
  /// False when its URL names another store by now, or none. Costs a system call at most.
  virtual bool is_current() const { return true; }

  /// Fills `to` from `offset`. kCorruption when the object ends before that.
  virtual Status get_range(std::string_view key, uint64_t offset, MutableByteView to,
                           Deadline deadline) = 0;
  /// The whole object; kCorruption when it is larger than `bytes_max`.
  virtual Result<Bytes> get(std::string_view key, uint64_t bytes_max, Deadline deadline) = 0;
  /// The same for those who may not block: nothing unless it can be had without waiting for a disk
  /// or a network, and the URL still names this store.
  virtual std::optional<Bytes> get_at_once(std::string_view key, uint64_t bytes_max) {
    (void)key;
    (void)bytes_max;
    return std::nullopt;
  }
  virtual Result<ObjectInfo> stat(std::string_view key, Deadline deadline) = 0;

  /// Durable when it returns. False when the object was there already (and was left alone).
  virtual Result<bool> put_if_absent(std::string_view key, ByteView bytes, Deadline deadline) = 0;
  /// Creates or replaces atomically; for refs, leases, tombstones and `current` only.
  virtual Status replace(std::string_view key, ByteView bytes, Deadline deadline) = 0;
  /// For packs, which are written in pieces.
  virtual Result<std::unique_ptr<ObjectWriter>> create() = 0;
  /// Removes what writers that died left unpublished for longer than `age_s` seconds; returns how
  /// many objects it removed.
  virtual Result<uint64_t> remove_stale_temporaries(int64_t age_s, Deadline deadline) = 0;

  /// Calls `visit` for every object whose key starts with `prefix` (a prefix ends in '/', or is
  /// ""), in no particular order; a failed visit ends the listing with its error.
  virtual Status list(std::string_view prefix,
                      const std::function<Status(const std::string& key, const ObjectInfo&)>& visit,
                      Deadline deadline) = 0;
  /// Durable when it returns. kNotFound when it was not there.
  virtual Status remove(std::string_view key, Deadline deadline) = 0;
  /// Seconds since 1970 by the store's clock: leases and tombstones are judged by it.
  virtual Result<int64_t> now_s(Deadline deadline) = 0;
};

/// Whether the store says that there is no such object; false also when it says nothing.
inline bool is_gone(Store& store, std::string_view key) {
  const auto found = store.stat(key, kNoDeadline);
  return !found && found.error().code() == ErrorCode::kNotFound;
}

/// Opens `url`; `file:///dir` (or a plain absolute path) is the one engine so far.
/// @param create  Makes a store there when there is none; without it that is kNotFound. A directory
///                that holds other things is refused (kInvalidArgument).
Result<std::shared_ptr<Store>> open_store(const std::string& url, bool create);

}  // namespace varve::chunkstore
