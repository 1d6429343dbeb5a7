#include "fs/cache/single_flight.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace varve::fs {
namespace {

TEST(SingleFlightTest, FollowersGetWhatTheLeaderLands) {
  SingleFlight flights;
  auto leader = flights.join(7);
  ASSERT_TRUE(leader.leader);
  auto follower = flights.join(7);
  ASSERT_TRUE(follower.follower);
  EXPECT_TRUE(flights.join(8).leader);
  EXPECT_TRUE(leader.leader->has_followers_or_close());
  const auto bytes = std::make_shared<const ChunkBuffer>(3);
  std::thread thread([&] { leader.leader->land(bytes); });
  EXPECT_EQ(follower.follower->wait(kNoDeadline).value(), bytes);
  thread.join();
  EXPECT_TRUE(flights.join(7).leader);
}

TEST(SingleFlightTest, ALeaderThatGivesUpWakesItsFollowers) {
  SingleFlight flights;
  std::optional<SingleFlight::Ticket> leader = flights.join(7);
  auto follower = flights.join(7);
  std::thread thread([&] { leader.reset(); });
  EXPECT_EQ(follower.follower->wait(kNoDeadline).error().code(), ErrorCode::kCancelled);
  thread.join();
}

TEST(SingleFlightTest, AFollowerWaitsNoLongerThanItsDeadline) {
  SingleFlight flights;
  auto leader = flights.join(7);
  auto follower = flights.join(7);
  EXPECT_EQ(follower.follower->wait(deadline_after_ms(1)).error().code(), ErrorCode::kTimedOut);
}

TEST(SingleFlightTest, AFlightWithoutFollowersIsOverWhenItsLeaderAsks) {
  SingleFlight flights;
  auto leader = flights.join(7);
  EXPECT_FALSE(leader.leader->has_followers_or_close());
  auto next = flights.join(7);
  EXPECT_TRUE(next.leader);
  // The end of the first leader does not touch the second's flight.
  leader.leader.reset();
  EXPECT_TRUE(flights.join(7).follower);
}

TEST(SingleFlightTest, LeadsOnlyWhereNobodyElseDoes) {
  SingleFlight flights;
  auto leader = flights.try_lead(7);
  ASSERT_TRUE(leader);
  EXPECT_FALSE(flights.try_lead(7));
  auto follower = flights.join(7);
  leader->give_up();
  EXPECT_EQ(follower.follower->wait(kNoDeadline).error().code(), ErrorCode::kCancelled);
  EXPECT_TRUE(flights.try_lead(7));
}

TEST(SingleFlightTest, ManyThreadsFetchEachKeyOnceAtATime) {
  SingleFlight flights;
  std::atomic<int> in_flight{0};
  std::atomic<bool> overlapped{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 1000; ++round) {
        auto ticket = flights.join(1);
        if (ticket.follower) {
          EXPECT_TRUE(ticket.follower->wait(kNoDeadline));
          continue;
        }
        if (in_flight.fetch_add(1) != 0) overlapped = true;
        in_flight.fetch_sub(1);
        ticket.leader->land(std::make_shared<const ChunkBuffer>(1));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(overlapped);
}

}  // namespace
}  // namespace varve::fs
