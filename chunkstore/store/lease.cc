#include "chunkstore/store/lease.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "chunkstore/format/keys.h"

namespace varve::chunkstore {
namespace {

constexpr int64_t kRenewalsInTtl = 3;

}  // namespace

Lease::Lease(std::shared_ptr<Store> store, int64_t ttl_s)
    : store_(std::move(store)), ttl_s_(ttl_s), uuid_(random_uuid()) {}

Result<std::unique_ptr<Lease>> Lease::take(std::shared_ptr<Store> store, int64_t ttl_s) {
  auto lease = std::unique_ptr<Lease>(new Lease(std::move(store), ttl_s));
  if (auto status = lease->renew(); !status) {
    return fail(std::move(status).error(), "taking a lease");
  }
  lease->renewer_ = std::thread([raw = lease.get()] { raw->renew_until_released(); });
  return lease;
}

Lease::~Lease() {
  // A lease that cannot be removed lapses by itself.
  (void)release();
}

Status Lease::write_locked() {
  const auto check_not_lapsed = [&](int64_t now, int64_t margin_s) -> Status {
    if (expires_s_ == 0 || now < expires_s_ + margin_s) return {};
    return fail(ErrorCode::kUnavailable,
                fmt::format("lease {} lapsed {} seconds ago: the store or this program was stopped "
                            "for too long, and garbage collection may have run",
                            uuid_, now - expires_s_));
  };
  VARVE_ASSIGN(const int64_t now, store_->now_s(kNoDeadline));
  VARVE_TRY(check_not_lapsed(now, 0));
  LeaseRecord record;
  record.expires_s = now + ttl_s_;
  record.objects.assign(objects_.begin(), objects_.end());
  VARVE_TRY(store_->replace(lease_key(uuid_), encode_lease(record), kNoDeadline));
  // Collectors honour a lease for kDeletionWindowS after its end, so that a renewal may be on its
  // way; one that took longer came too late.
  VARVE_ASSIGN(const int64_t written_at, store_->now_s(kNoDeadline));
  VARVE_TRY(check_not_lapsed(written_at, kDeletionWindowS));
  expires_s_ = record.expires_s;
  return {};
}

Status Lease::renew() {
  std::lock_guard lock(mutex_);
  VARVE_ASSIGN(const int64_t now, store_->now_s(kNoDeadline));
  // What add() has just written, with the same keys, is not written once more.
  if (expires_s_ - now >= ttl_s_ - ttl_s_ / kRenewalsInTtl) return {};
  return write_locked();
}

Status Lease::add(std::span<const std::string> keys) {
  std::lock_guard lock(mutex_);
  const size_t old_count = objects_.size();
  objects_.insert(keys.begin(), keys.end());
  if (objects_.size() == old_count) return {};
  if (objects_.size() > kLeaseObjectCountMax) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("one build uses more than {} objects", kLeaseObjectCountMax));
  }
  return write_locked();
}

Status Lease::release() {
  {
    std::lock_guard lock(mutex_);
    if (released_) return {};
    released_ = true;
  }
  released_changed_.notify_all();
  if (renewer_.joinable()) renewer_.join();
  auto status = store_->remove(lease_key(uuid_), kNoDeadline);
  if (!status && status.error().code() == ErrorCode::kNotFound) return {};
  return status;
}

void Lease::renew_until_released() {
  const auto interval = std::chrono::milliseconds(ttl_s_ * 1000 / kRenewalsInTtl);
  std::unique_lock lock(mutex_);
  while (!released_changed_.wait_for(lock, interval, [&] { return released_; })) {
    // A failure is not the end: the next turn tries again, and if the lease lapses meanwhile, the
    // builder hears of it from its own renew() before it publishes anything.
    (void)write_locked();
  }
}

Result<Sentence> read_sentence(Store& store, std::string_view key, int64_t now_s) {
  auto bytes = store.get(tombstone_key(key), kTombstoneBytesMax, kNoDeadline);
  if (!bytes && bytes.error().code() == ErrorCode::kNotFound) return Sentence::kNone;
  if (!bytes) return tl::unexpected(std::move(bytes).error());
  auto tombstone = parse_tombstone(*bytes);
  if (!tombstone) return fail(std::move(tombstone).error(), quoted(tombstone_key(key)));
  if (tombstone->settled_s != 0) {
    return now_s > tombstone->settled_s + kDeletionWindowS ? Sentence::kNone : Sentence::kUrgent;
  }
  // A second on top: the clock has whole seconds.
  return now_s + 1 < tombstone->due_s ? Sentence::kStanding : Sentence::kUrgent;
}

void sleep_for_real(std::chrono::seconds duration) {
  std::this_thread::sleep_for(duration);
}

Status claim(Store& store, std::span<const std::string> keys, const SleepFunction& sleep) {
  VARVE_ASSIGN(const int64_t now, store.now_s(kNoDeadline));
  for (const std::string& key : keys) {
    VARVE_ASSIGN(const Sentence sentence, read_sentence(store, key, now));
    if (sentence != Sentence::kUrgent) continue;
    // One wait is enough for all: it is counted from after the lease was written.
    sleep(std::chrono::seconds(kDeletionWindowS + 1));
    return {};
  }
  return {};
}

}  // namespace varve::chunkstore
