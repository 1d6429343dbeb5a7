#pragma once

#include <mutex>
#include <vector>

#include "base/bytes.h"

namespace varve::fs {

/// Page-aligned buffers of one size, a few kept for reuse. Thread-safe.
class PayloadPool {
 public:
  PayloadPool(size_t buffer_bytes, size_t kept_count_max)
      : buffer_bytes_(buffer_bytes), kept_count_max_(kept_count_max) {}
  ~PayloadPool();
  PayloadPool(const PayloadPool&) = delete;
  PayloadPool& operator=(const PayloadPool&) = delete;

  /// Memory is touched only where it is written. Aborts when the address space is exhausted.
  uint8_t* acquire();
  void release(uint8_t* buffer);
  size_t buffer_bytes() const { return buffer_bytes_; }

 private:
  const size_t buffer_bytes_;
  const size_t kept_count_max_;
  std::mutex mutex_;
  std::vector<uint8_t*> kept_;
};

/// Anonymous pages, `bytes` long, not reserved before they are touched; aborts on failure.
uint8_t* map_anonymous(size_t bytes);
void unmap_anonymous(uint8_t* memory, size_t bytes);

}  // namespace varve::fs
