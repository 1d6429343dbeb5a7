#include "fs/fetch/store_session.h"

namespace varve::fs {

Result<std::shared_ptr<chunkstore::Store>> StoreSession::open() {
  // Without the lock: one caller that hangs in the store is enough.
  const std::shared_ptr<chunkstore::Store> before = opened();
  if (before != nullptr && before->is_current()) return before;
  VARVE_ASSIGN(std::shared_ptr<chunkstore::Store> opened, opener_(url_));
  std::lock_guard lock(mutex_);
  if (store_ == before) store_ = std::move(opened);
  return store_;
}

std::shared_ptr<chunkstore::Store> StoreSession::opened() {
  std::lock_guard lock(mutex_);
  return store_;
}

}  // namespace varve::fs
