#include "fs/transport/payload_pool.h"

#include <sys/mman.h>

#include "base/check.h"

namespace varve::fs {

uint8_t* map_anonymous(size_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  VARVE_CHECK(memory != MAP_FAILED);
  return static_cast<uint8_t*>(memory);
}

void unmap_anonymous(uint8_t* memory, size_t bytes) {
  munmap(memory, bytes);
}

PayloadPool::~PayloadPool() {
  for (uint8_t* buffer : kept_) unmap_anonymous(buffer, buffer_bytes_);
}

uint8_t* PayloadPool::acquire() {
  {
    std::lock_guard lock(mutex_);
    if (!kept_.empty()) {
      uint8_t* buffer = kept_.back();
      kept_.pop_back();
      return buffer;
    }
  }
  return map_anonymous(buffer_bytes_);
}

void PayloadPool::release(uint8_t* buffer) {
  {
    std::lock_guard lock(mutex_);
    if (kept_.size() < kept_count_max_) {
      kept_.push_back(buffer);
      return;
    }
  }
  unmap_anonymous(buffer, buffer_bytes_);
}

}  // namespace varve::fs
