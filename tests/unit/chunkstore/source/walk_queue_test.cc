#include "chunkstore/source/walk_queue.h"

#include <gtest/gtest.h>

namespace varve::chunkstore {
namespace {

constexpr size_t kThreadCount = 4;
constexpr size_t kDirectoryCount = 40;
constexpr size_t kBatchCount = 100;
constexpr size_t kBatchEntryCount = 10;

/// The root holds directories, each of which puts more entries than the queue likes to hold.
Status list(const std::string& directory, WalkQueue& queue) {
  if (directory.empty()) {
    for (size_t i = 0; i < kDirectoryCount; ++i) {
      VARVE_TRY(queue.push_directory("d" + std::to_string(i)));
    }
    return {};
  }
  for (size_t i = 0; i < kBatchCount; ++i) {
    if (!queue.put(WalkQueue::Batch(kBatchEntryCount))) return {};
  }
  return {};
}

TEST(WalkQueueTest, HandsEverythingOverWithoutHoldingMuchOfIt) {
  WalkQueue queue(list, "/var/tmp");
  queue.start(kThreadCount);
  size_t count = 0;
  for (;;) {
    auto batch = queue.take();
    ASSERT_TRUE(batch) << batch.error().to_string();
    if (!*batch) break;
    EXPECT_LE((*batch)->size(), WalkQueue::kFoundCountMax + kThreadCount * kBatchEntryCount);
    count += (*batch)->size();
  }
  EXPECT_EQ(count, kDirectoryCount * kBatchCount * kBatchEntryCount);
}

TEST(WalkQueueTest, GoesWhileListersWaitForItsConsumer) {
  WalkQueue queue(list, "/var/tmp");
  queue.start(kThreadCount);
  EXPECT_TRUE(queue.take());
}

TEST(WalkQueueTest, ReportsTheErrorOfAListerWhileOthersWait) {
  WalkQueue queue(
      [](const std::string& directory, WalkQueue& to) -> Status {
        if (directory == "d0") return fail(ErrorCode::kPermission, "closed");
        return list(directory, to);
      },
      "/var/tmp");
  queue.start(kThreadCount);
  for (;;) {
    const auto batch = queue.take();
    if (batch) {
      ASSERT_TRUE(*batch);
      continue;
    }
    EXPECT_EQ(batch.error().code(), ErrorCode::kPermission);
    break;
  }
}

}  // namespace
}  // namespace varve::chunkstore
