#include "chunkstore/read/internal/page_spool.h"

namespace varve::chunkstore {

PageFlights::Flight::~Flight() {
  if (flights_ == nullptr) return;
  {
    std::lock_guard lock(flights_->mutex_);
    flights_->in_flight_.erase(page_);
  }
  flights_->landed_.notify_all();
}

Result<PageFlights::Flight> PageFlights::board(uint64_t page, Deadline deadline) {
  std::unique_lock lock(mutex_);
  const auto is_free = [&] { return in_flight_.count(page) == 0; };
  if (!landed_.wait_until(lock, deadline, is_free)) {
    return fail(ErrorCode::kTimedOut, "waiting for another reader's fetch of the same page");
  }
  in_flight_.insert(page);
  return Flight(*this, page);
}

}  // namespace varve::chunkstore
