#include "tests/support/fault_store.h"

#include <utility>

namespace varve::test {
namespace {

class FaultWriter : public chunkstore::ObjectWriter {
 public:
  FaultWriter(FaultStore& store, std::unique_ptr<chunkstore::ObjectWriter> writer)
      : store_(store), writer_(std::move(writer)) {}

  Status write(ByteView bytes) override {
    VARVE_TRY(store_.before(FaultStore::Op::kWrite, ""));
    return writer_->write(bytes);
  }
  Status publish(std::string_view key) override {
    VARVE_TRY(store_.before(FaultStore::Op::kPublish, key));
    return writer_->publish(key);
  }

 private:
  FaultStore& store_;
  std::unique_ptr<chunkstore::ObjectWriter> writer_;
};

}  // namespace

FaultStore::FaultStore(std::shared_ptr<chunkstore::Store> store, Before before)
    : store_(std::move(store)), before_(std::move(before)) {}

Status FaultStore::get_range(std::string_view key, uint64_t offset, MutableByteView to,
                             Deadline deadline) {
  VARVE_TRY(before(Op::kGetRange, key));
  VARVE_TRY(store_->get_range(key, offset, to, deadline));
  if (after_read_) after_read_(key, offset, to);
  return {};
}

Result<Bytes> FaultStore::get(std::string_view key, uint64_t bytes_max, Deadline deadline) {
  VARVE_TRY(before(Op::kGet, key));
  VARVE_ASSIGN(Bytes bytes, store_->get(key, bytes_max, deadline));
  if (after_read_) after_read_(key, 0, bytes);
  return bytes;
}

Result<chunkstore::ObjectInfo> FaultStore::stat(std::string_view key, Deadline deadline) {
  VARVE_TRY(before(Op::kStat, key));
  return store_->stat(key, deadline);
}

Result<bool> FaultStore::put_if_absent(std::string_view key, ByteView bytes, Deadline deadline) {
  VARVE_TRY(before(Op::kPut, key));
  return store_->put_if_absent(key, bytes, deadline);
}

Status FaultStore::replace(std::string_view key, ByteView bytes, Deadline deadline) {
  VARVE_TRY(before(Op::kReplace, key));
  return store_->replace(key, bytes, deadline);
}

Result<std::unique_ptr<chunkstore::ObjectWriter>> FaultStore::create() {
  VARVE_TRY(before(Op::kCreate, ""));
  VARVE_ASSIGN(auto writer, store_->create());
  return std::make_unique<FaultWriter>(*this, std::move(writer));
}

Result<uint64_t> FaultStore::remove_stale_temporaries(int64_t age_s, Deadline deadline) {
  VARVE_TRY(before(Op::kCleanTemp, ""));
  return store_->remove_stale_temporaries(age_s, deadline);
}

Status FaultStore::list(
    std::string_view prefix,
    const std::function<Status(const std::string&, const chunkstore::ObjectInfo&)>& visit,
    Deadline deadline) {
  VARVE_TRY(before(Op::kList, prefix));
  return store_->list(prefix, visit, deadline);
}

Status FaultStore::remove(std::string_view key, Deadline deadline) {
  VARVE_TRY(before(Op::kRemove, key));
  return store_->remove(key, deadline);
}

Result<int64_t> FaultStore::now_s(Deadline deadline) {
  VARVE_TRY(before(Op::kNow, ""));
  VARVE_ASSIGN(const int64_t now, store_->now_s(deadline));
  return now + clock_offset_s_;
}

}  // namespace varve::test
