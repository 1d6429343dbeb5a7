#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "chunkstore/store/store.h"

namespace varve::chunkstore {

struct VerifyFault {
  std::string key;      ///< Of the object that is wrong.
  std::string message;  ///< What is wrong, with the place inside the object.
};

struct VerifyOptions {
  /// Reads every chunk; without it packs are checked by their indexes and sizes only.
  bool is_deep = true;
  /// Threads that read packs; 0 = one a CPU that this process may use. Each holds a pack (64 MiB).
  size_t thread_count = 0;
  /// Called with each fault as it is found, from one thread at a time.
  std::function<void(const VerifyFault&)> on_fault;
  /// Bytes of packs checked so far, of all; from one thread at a time.
  std::function<void(uint64_t done_bytes, uint64_t all_bytes)> on_progress;
};

struct VerifyResult {
  uint64_t pack_count = 0;
  uint64_t chunk_count = 0;  ///< In packs.
  uint64_t layer_count = 0;
  uint64_t placement_count = 0;
  uint64_t image_count = 0;
  uint64_t ref_count = 0;
  std::vector<VerifyFault> faults;  ///< Sorted by key.
};

/// Checks every object of a store: hashes of packs, chunks, layer headers, leaves, placements and
/// images; that refs name images, images layers, layers placements, and placements chunks that are
/// where they say; leases and tombstones; keys that no object should have. Goes on after a fault.
/// What builds publish and collections delete meanwhile makes none. Errors: only what keeps it from
/// listing the store.
Result<VerifyResult> verify_store(Store& store, const VerifyOptions& options);

}  // namespace varve::chunkstore
