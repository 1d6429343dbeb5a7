#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <thread>

#include "base/error.h"
#include "chunkstore/format/lease.h"
#include "chunkstore/store/store.h"

/// How builders and garbage collection keep out of each other's way (varve-store(5), GARBAGE
/// COLLECTION). A builder lists an object in its lease *before* it looks at the object's tombstone,
/// and relies on the object only after that. A collector reads leases before refs, and deletes an
/// object only while less than kDeletionWindowS have passed since it read both and found the object
/// in neither.
namespace varve::chunkstore {

inline constexpr int64_t kLeaseTtlS = 600;
inline constexpr int64_t kDeletionWindowS = 30;

/// A lease that a builder holds: renewed by a thread of its own, removed when released or
/// destroyed. Thread-safe.
class Lease {
 public:
  /// @param ttl_s  Seconds that a builder may be out of touch before its lease lapses.
  static Result<std::unique_ptr<Lease>> take(std::shared_ptr<Store> store,
                                             int64_t ttl_s = kLeaseTtlS);
  ~Lease();
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;

  /// Adds `keys`; they are in the store's copy when it returns. Errors: as renew(),
  /// kInvalidArgument (more than kLeaseObjectCountMax keys).
  Status add(std::span<const std::string> keys);
  /// Success means that the lease has not lapsed since it was taken, and that two thirds of `ttl_s`
  /// are left: it is written again where they are not. Errors: kUnavailable (it has lapsed: what it
  /// listed may be gone), the store's.
  Status renew();
  /// Removes the lease; call when all that it listed is reachable from a ref.
  Status release();

  const std::string& uuid() const { return uuid_; }

 private:
  Lease(std::shared_ptr<Store> store, int64_t ttl_s);
  Status write_locked();
  void renew_until_released();

  const std::shared_ptr<Store> store_;
  const int64_t ttl_s_;
  const std::string uuid_;
  std::mutex mutex_;
  std::condition_variable released_changed_;
  bool released_ = false;
  int64_t expires_s_ = 0;
  std::set<std::string> objects_;
  std::thread renewer_;
};

/// What a tombstone says about an object.
enum class Sentence {
  kNone,      ///< Nothing, or a sentence settled so long ago that no collector acts on it.
  kStanding,  ///< Condemned; a collector reads leases again before it is deleted.
  kUrgent,    ///< It may be being deleted right now.
};
/// @param now_s  By the store's clock.
Result<Sentence> read_sentence(Store& store, std::string_view key, int64_t now_s);

/// Waits for that many seconds; tests pass a clock of their own.
using SleepFunction = std::function<void(std::chrono::seconds)>;
void sleep_for_real(std::chrono::seconds duration);

/// Returns when no collector that did not see the caller's lease can still delete any of `keys`,
/// which the lease lists already: at once, or after kDeletionWindowS where a sentence is urgent.
/// Whether the objects exist is to be looked at *after* it returned.
Status claim(Store& store, std::span<const std::string> keys,
             const SleepFunction& sleep = sleep_for_real);

}  // namespace varve::chunkstore
