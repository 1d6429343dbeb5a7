#include "tests/support/memory_store.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace varve::test {
namespace {

class MemoryWriter final : public chunkstore::ObjectWriter {
 public:
  explicit MemoryWriter(MemoryStore& store) : store_(store) {}
  Status write(ByteView bytes) override {
    append(bytes_, bytes);
    return {};
  }
  Status publish(std::string_view key) override {
    VARVE_TRY(store_.put_if_absent(key, bytes_, kNoDeadline));
    return {};
  }

 private:
  MemoryStore& store_;
  Bytes bytes_;
};

}  // namespace

void MemoryStore::advance_clock(int64_t duration_s) {
  std::lock_guard lock(mutex_);
  now_s_ += duration_s;
}

std::map<std::string, Bytes> MemoryStore::objects() const {
  std::lock_guard lock(mutex_);
  return objects_;
}

Status MemoryStore::get_range(std::string_view key, uint64_t offset, MutableByteView to, Deadline) {
  std::lock_guard lock(mutex_);
  const auto found = objects_.find(std::string(key));
  if (found == objects_.end()) return fail(ErrorCode::kNotFound, "no object " + quoted(key));
  const Bytes& bytes = found->second;
  if (offset > bytes.size() || to.size() > bytes.size() - offset) {
    return fail(ErrorCode::kCorruption, quoted(key) + " ends before the range");
  }
  std::copy_n(bytes.begin() + static_cast<ptrdiff_t>(offset), to.size(), to.begin());
  return {};
}

Result<Bytes> MemoryStore::get(std::string_view key, uint64_t bytes_max, Deadline) {
  std::lock_guard lock(mutex_);
  const auto found = objects_.find(std::string(key));
  if (found == objects_.end()) return fail(ErrorCode::kNotFound, "no object " + quoted(key));
  if (found->second.size() > bytes_max) {
    return fail(ErrorCode::kCorruption, quoted(key) + " is too large");
  }
  return found->second;
}

Result<chunkstore::ObjectInfo> MemoryStore::stat(std::string_view key, Deadline) {
  std::lock_guard lock(mutex_);
  const auto found = objects_.find(std::string(key));
  if (found == objects_.end()) return fail(ErrorCode::kNotFound, "no object " + quoted(key));
  return chunkstore::ObjectInfo{found->second.size(), now_s_};
}

Result<bool> MemoryStore::put_if_absent(std::string_view key, ByteView bytes, Deadline) {
  std::lock_guard lock(mutex_);
  return objects_.try_emplace(std::string(key), bytes.begin(), bytes.end()).second;
}

Status MemoryStore::replace(std::string_view key, ByteView bytes, Deadline) {
  std::lock_guard lock(mutex_);
  objects_[std::string(key)] = Bytes(bytes.begin(), bytes.end());
  return {};
}

Result<std::unique_ptr<chunkstore::ObjectWriter>> MemoryStore::create() {
  return std::make_unique<MemoryWriter>(*this);
}

Result<uint64_t> MemoryStore::remove_stale_temporaries(int64_t, Deadline) {
  return 0;
}

Status MemoryStore::list(
    std::string_view prefix,
    const std::function<Status(const std::string&, const chunkstore::ObjectInfo&)>& visit,
    Deadline) {
  std::vector<std::pair<std::string, chunkstore::ObjectInfo>> found;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [key, bytes] : objects_) {
      if (key.starts_with(prefix)) found.push_back({key, {bytes.size(), now_s_}});
    }
  }
  for (const auto& [key, info] : found) VARVE_TRY(visit(key, info));
  return {};
}

Status MemoryStore::remove(std::string_view key, Deadline) {
  std::lock_guard lock(mutex_);
  if (objects_.erase(std::string(key)) != 0) return {};
  return fail(ErrorCode::kNotFound, "no object " + quoted(key));
}

Result<int64_t> MemoryStore::now_s(Deadline) {
  std::lock_guard lock(mutex_);
  return now_s_;
}

}  // namespace varve::test
