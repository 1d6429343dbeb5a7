#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "chunkstore/store/store.h"

namespace varve::test {

/// A store that asks `before` ahead of every operation on another one, so that tests can count,
/// delay, refuse or reorder them. Thread-safe if the hooks are.
class FaultStore : public chunkstore::Store {
 public:
  enum class Op {
    kGetRange,
    kGet,
    kStat,
    kPut,
    kReplace,
    kCreate,
    kWrite,
    kPublish,
    kList,
    kRemove,
    kNow,
    kCleanTemp
  };
  /// An error is what the operation answers, without having been done. `key` is "" for kCreate,
  /// kWrite, kNow and kCleanTemp, the prefix for kList.
  using Before = std::function<Status(Op op, std::string_view key)>;
  /// May change the bytes that kGetRange and kGet have read.
  using AfterRead =
      std::function<void(std::string_view key, uint64_t offset, MutableByteView bytes)>;

  explicit FaultStore(std::shared_ptr<chunkstore::Store> store, Before before = nullptr);
  void set_before(Before before) { before_ = std::move(before); }
  /// Moves this store's clock ahead of the other's.
  void advance_clock(int64_t duration_s) { clock_offset_s_ += duration_s; }
  void set_after_read(AfterRead after) { after_read_ = std::move(after); }

  const std::string& url() const override { return store_->url(); }
  const std::string& id() const override { return store_->id(); }
  bool is_current() const override { return store_->is_current(); }
  Status get_range(std::string_view key, uint64_t offset, MutableByteView to,
                   Deadline deadline) override;
  Result<Bytes> get(std::string_view key, uint64_t bytes_max, Deadline deadline) override;
  /// No operation that `before` is asked about: it is part of what the store answers by itself.
  std::optional<Bytes> get_at_once(std::string_view key, uint64_t bytes_max) override {
    return store_->get_at_once(key, bytes_max);
  }
  Result<chunkstore::ObjectInfo> stat(std::string_view key, Deadline deadline) override;
  Result<bool> put_if_absent(std::string_view key, ByteView bytes, Deadline deadline) override;
  Status replace(std::string_view key, ByteView bytes, Deadline deadline) override;
  Result<std::unique_ptr<chunkstore::ObjectWriter>> create() override;
  Result<uint64_t> remove_stale_temporaries(int64_t age_s, Deadline deadline) override;
  Status list(std::string_view prefix,
              const std::function<Status(const std::string&, const chunkstore::ObjectInfo&)>& visit,
              Deadline deadline) override;
  Status remove(std::string_view key, Deadline deadline) override;
  Result<int64_t> now_s(Deadline deadline) override;

  Status before(Op op, std::string_view key) const { return before_ ? before_(op, key) : Status(); }

 private:
  std::shared_ptr<chunkstore::Store> store_;
  Before before_;
  AfterRead after_read_;
  std::atomic<int64_t> clock_offset_s_{0};
};

}  // namespace varve::test
