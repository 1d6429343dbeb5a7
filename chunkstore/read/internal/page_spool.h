#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/unique_fd.h"

namespace varve::chunkstore {

/// One bit a page: whether the page is in the spool. Thread-safe.
class PageBits {
 public:
  explicit PageBits(uint32_t page_count)
      : word_count_((size_t{page_count} + 63) / 64),
        words_(std::make_unique<std::atomic<uint64_t>[]>(word_count_)) {}

  bool test(uint32_t page) const {
    return (words_[page / 64].load(std::memory_order_acquire) >> (page % 64) & 1) != 0;
  }
  /// What was written before is visible to whoever sees the bit.
  void set(uint32_t page) {
    words_[page / 64].fetch_or(uint64_t{1} << (page % 64), std::memory_order_release);
  }
  size_t memory_bytes() const { return word_count_ * sizeof(uint64_t); }

 private:
  size_t word_count_;
  std::unique_ptr<std::atomic<uint64_t>[]> words_;
};

/// Lets one caller at a time fetch a page; others that want the same page wait for it, by a
/// deadline. Thread-safe.
class PageFlights {
 public:
  /// Holds the right to fetch `page` until it goes.
  class Flight {
   public:
    Flight(PageFlights& flights, uint64_t page) : flights_(&flights), page_(page) {}
    Flight(Flight&& other) noexcept
        : flights_(std::exchange(other.flights_, nullptr)), page_(other.page_) {}
    Flight& operator=(Flight&&) = delete;
    ~Flight();

   private:
    PageFlights* flights_;
    uint64_t page_;
  };

  /// Waits while another holds `page`. Errors: kTimedOut.
  Result<Flight> board(uint64_t page, Deadline deadline);

 private:
  std::mutex mutex_;
  std::condition_variable landed_;
  std::set<uint64_t> in_flight_;
};

}  // namespace varve::chunkstore
