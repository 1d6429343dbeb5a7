#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "base/clock.h"
#include "base/error.h"
#include "fs/cache/memory_cache.h"

namespace varve::fs {

/// Lets one thread fetch a chunk while others that want the same chunk wait for its result.
/// Thread-safe. Keys are chunk indexes of one layer.
class SingleFlight {
 private:
  struct Flight {
    std::mutex mutex;
    std::condition_variable landed;
    std::optional<Result<ChunkBytes>> result;
    size_t follower_count = 0;
  };

 public:
  /// The right, and duty, to fetch a chunk. Gives up when it is destroyed
  /// without land(), so that nobody waits for ever. Move-only.
  class Leader {
   public:
    Leader(Leader&& other) noexcept = default;
    Leader& operator=(Leader&&) = delete;
    ~Leader();

    /// True when somebody waits for the bytes. When it says no the flight is over: later comers
    /// start one of their own, and the caller need not keep the bytes.
    bool has_followers_or_close();
    /// Hands the result to the followers.
    void land(Result<ChunkBytes> result);
    /// Ends the flight without a result: each follower has to fetch the chunk himself.
    void give_up();

   private:
    friend class SingleFlight;
    Leader(SingleFlight& owner, uint64_t key, std::shared_ptr<Flight> flight)
        : owner_(&owner), key_(key), flight_(std::move(flight)) {}

    SingleFlight* owner_;
    uint64_t key_;
    std::shared_ptr<Flight> flight_;  // Null once landed or closed.
  };

  /// Waits for another thread's fetch.
  class Follower {
   public:
    /// Errors: the leader's, kCancelled when it gave up, or kTimedOut.
    Result<ChunkBytes> wait(Deadline deadline);

   private:
    friend class SingleFlight;
    explicit Follower(std::shared_ptr<Flight> flight) : flight_(std::move(flight)) {}
    std::shared_ptr<Flight> flight_;
  };

  struct Ticket {
    std::optional<Leader> leader;  ///< Exactly one of the two is set.
    std::optional<Follower> follower;
  };
  /// Joins the flight of `key`, or starts one. The object outlives its leaders.
  Ticket join(uint64_t key);
  /// Starts the flight of `key`; nothing when there is one.
  std::optional<Leader> try_lead(uint64_t key);

 private:
  std::mutex mutex_;
  std::unordered_map<uint64_t, std::shared_ptr<Flight>> flights_;
};

}  // namespace varve::fs
