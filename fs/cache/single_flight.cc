#include "fs/cache/single_flight.h"

namespace varve::fs {

SingleFlight::Leader::~Leader() {
  give_up();
}

void SingleFlight::Leader::give_up() {
  land(fail(ErrorCode::kCancelled, "the fetch was given up"));
}

bool SingleFlight::Leader::has_followers_or_close() {
  if (flight_ == nullptr) return false;
  std::lock_guard owner_lock(owner_->mutex_);
  {
    std::lock_guard lock(flight_->mutex);
    if (flight_->follower_count > 0) return true;
  }
  owner_->flights_.erase(key_);
  flight_.reset();
  return false;
}

void SingleFlight::Leader::land(Result<ChunkBytes> result) {
  if (flight_ == nullptr) return;
  {
    std::lock_guard owner_lock(owner_->mutex_);
    owner_->flights_.erase(key_);
  }
  {
    std::lock_guard lock(flight_->mutex);
    flight_->result.emplace(std::move(result));
  }
  flight_->landed.notify_all();
  flight_.reset();
}

Result<ChunkBytes> SingleFlight::Follower::wait(Deadline deadline) {
  std::unique_lock lock(flight_->mutex);
  if (!flight_->landed.wait_until(lock, deadline, [&] { return flight_->result.has_value(); })) {
    return fail(ErrorCode::kTimedOut, "another reader's fetch took too long");
  }
  return *flight_->result;
}

SingleFlight::Ticket SingleFlight::join(uint64_t key) {
  std::lock_guard owner_lock(mutex_);
  auto [position, is_new] = flights_.try_emplace(key);
  Ticket ticket;
  if (is_new) {
    position->second = std::make_shared<Flight>();
    ticket.leader.emplace(Leader(*this, key, position->second));
  } else {
    std::lock_guard lock(position->second->mutex);
    ++position->second->follower_count;
    ticket.follower.emplace(Follower(position->second));
  }
  return ticket;
}

std::optional<SingleFlight::Leader> SingleFlight::try_lead(uint64_t key) {
  std::lock_guard owner_lock(mutex_);
  auto [position, is_new] = flights_.try_emplace(key);
  if (!is_new) return std::nullopt;
  position->second = std::make_shared<Flight>();
  return Leader(*this, key, position->second);
}

}  // namespace varve::fs
