#include "fs/fetch/store_session.h"

namespace varve::fs {

Status StoreSession::open() {
  if (store() != nullptr) return {};
  // Without the lock: a store that hangs while it is opened must not block store().
  VARVE_ASSIGN(std::shared_ptr<chunkstore::Store> opened, opener_(url_));
  std::lock_guard lock(mutex_);
  if (store_ == nullptr) store_ = std::move(opened);
  return {};
}

std::shared_ptr<chunkstore::Store> StoreSession::store() const {
  std::lock_guard lock(mutex_);
  return store_;
}

}  // namespace varve::fs
