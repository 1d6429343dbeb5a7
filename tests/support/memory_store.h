#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "chunkstore/store/store.h"

namespace varve::test {

/// A store in memory whose clock stands still unless it is moved. Thread-safe.
class MemoryStore final : public chunkstore::Store {
 public:
  explicit MemoryStore(std::map<std::string, Bytes> objects = {}) : objects_(std::move(objects)) {}

  void advance_clock(int64_t duration_s);
  /// A copy of all objects, by key.
  std::map<std::string, Bytes> objects() const;

  const std::string& url() const override { return url_; }
  const std::string& id() const override { return id_; }
  Status get_range(std::string_view key, uint64_t offset, MutableByteView to,
                   Deadline deadline) override;
  Result<Bytes> get(std::string_view key, uint64_t bytes_max, Deadline deadline) override;
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

 private:
  const std::string url_ = "memory:";
  const std::string id_ = "00000000-0000-4000-8000-000000000000";
  mutable std::mutex mutex_;
  std::map<std::string, Bytes> objects_;
  int64_t now_s_ = 1'000'000;
};

}  // namespace varve::test
