#pragma once

#include <array>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "base/error.h"
#include "base/hash.h"
#include "chunkstore/store/store.h"
#include "fs/fetch/fetch_pool.h"

namespace varve::fs {

using StoreOpener =
    std::function<Result<std::shared_ptr<chunkstore::Store>>(const std::string& url)>;

/// A store in use: its connection and the threads that may block on it. Thread-safe.
class StoreSession {
 public:
  StoreSession(std::string url, StoreOpener opener, size_t thread_count_max,
               FetchPool::ExecutorFactory make_executor)
      : url_(std::move(url)),
        opener_(std::move(opener)),
        pool_(thread_count_max, std::move(make_executor)) {}

  const std::string& url() const { return url_; }
  FetchPool& pool() { return pool_; }

  /// The store that the URL names now: opened when it is not open, or is another one than before.
  /// Who uses the one before goes on doing so. Blocks on it: on a thread of the pool only.
  Result<std::shared_ptr<chunkstore::Store>> open();
  /// What open() gave last, null before. Does not block.
  std::shared_ptr<chunkstore::Store> opened();
  /// Held while a layer is opened, so that attaches at the same time do it once.
  std::mutex& opening_mutex(const Digest& layer) {
    return opening_mutexes_[layer.bytes[0] % opening_mutexes_.size()];
  }

 private:
  const std::string url_;
  const StoreOpener opener_;
  std::mutex mutex_;
  std::shared_ptr<chunkstore::Store> store_;
  std::array<std::mutex, 16> opening_mutexes_;
  FetchPool pool_;
};

}  // namespace varve::fs
