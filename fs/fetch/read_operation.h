#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "fs/fuse/request.h"

namespace varve::fs {

class AttachedLayer;
struct LayerSource;

/// A part of a FUSE read: `size` bytes of the image, or zeros, at `payload_offset` of the reply.
struct ReadSegment {
  static constexpr uint64_t kHole = ~uint64_t{0};

  uint64_t image_offset = kHole;
  uint32_t size = 0;
  uint32_t payload_offset = 0;
};

/// A FUSE read that waits for the store. Whoever wants to write its payload or answer it claims it
/// first, so that a deadline or an interrupt can answer at any moment in between and the payload is
/// never written after that. Thread-safe.
class ReadOperation {
 public:
  ReadOperation(Request& request, std::shared_ptr<AttachedLayer> from,
                std::shared_ptr<LayerSource> first_source, std::vector<ReadSegment> parts,
                uint32_t reply_size, Deadline until)
      : unique(request.unique()),
        pid(request.header().pid),
        layer(std::move(from)),
        source(std::move(first_source)),
        segments(std::move(parts)),
        size(reply_size),
        deadline(until),
        request_(&request) {}

  const uint64_t unique;
  const uint32_t pid;
  const std::shared_ptr<AttachedLayer> layer;
  const std::shared_ptr<LayerSource> source;  ///< Asked first, on its threads.
  const std::vector<ReadSegment> segments;    ///< In order of payload.
  const uint32_t size;                        ///< Bytes of the reply.
  const Deadline deadline;

  /// Takes the right to write the payload; false when the read was answered. Held for processor
  /// work only, never across a wait for the store.
  bool claim() {
    int expected = kWaiting;
    return state_.compare_exchange_strong(expected, kClaimed, std::memory_order_acq_rel);
  }
  void unclaim() { state_.store(kWaiting, std::memory_order_release); }
  bool is_answered() const { return state_.load(std::memory_order_acquire) == kAnswered; }

  /// While claimed.
  MutableByteView payload() { return request_->payload(); }
  /// While claimed: the caller may answer, once; nobody else will.
  Request& take_request() {
    state_.store(kAnswered, std::memory_order_release);
    return *request_;
  }

 private:
  enum State : int { kWaiting, kClaimed, kAnswered };

  std::atomic<int> state_{kWaiting};
  Request* request_;
};

}  // namespace varve::fs
