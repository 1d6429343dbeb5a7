#include "fs/stats/touched_pages.h"

#include <gtest/gtest.h>

#include <thread>

namespace varve::fs {
namespace {

TEST(TouchedPagesTest, CountsEachPageOnce) {
  TouchedPages pages(1 << 20);
  pages.mark(0, 1);
  pages.mark(4095, 2);
  pages.mark(0, 4096);
  EXPECT_EQ(pages.count(), 2u);
  EXPECT_TRUE(pages.contains(1));
  EXPECT_FALSE(pages.contains(2));
  pages.mark(8192, 0);
  EXPECT_EQ(pages.count(), 2u);
}

TEST(TouchedPagesTest, IgnoresWhatLiesPastTheImage) {
  TouchedPages pages(10'000);
  EXPECT_EQ(pages.page_count(), 3u);
  pages.mark(8192, UINT64_MAX);
  pages.mark(UINT64_MAX, 1);
  pages.mark(12'288, 4096);
  EXPECT_EQ(pages.count(), 1u);
  pages.mark(0, UINT64_MAX);
  EXPECT_EQ(pages.count(), 3u);
  EXPECT_FALSE(pages.contains(3));
}

TEST(TouchedPagesTest, CrossesWordsAndBlocks) {
  TouchedPages pages(uint64_t{1} << 34);
  const uint64_t block = 512 * 64;
  pages.mark((block - 1) * 4096, 3 * 4096);
  pages.mark(63 * 4096, 66 * 4096);
  EXPECT_EQ(pages.count(), 3u + 66u);
  for (uint64_t page = 63; page < 63 + 66; ++page) EXPECT_TRUE(pages.contains(page));
  EXPECT_TRUE(pages.contains(block + 1));
  EXPECT_FALSE(pages.contains(block + 2));
}

TEST(TouchedPagesTest, RunsAreWhatWasMarked) {
  TouchedPages pages(uint64_t{1} << 34);
  const uint64_t block = 512 * 64;
  pages.mark(0, 1);
  pages.mark(62 * 4096, 4 * 4096);               // Over the end of a word,
  pages.mark((3 * block - 1) * 4096, 2 * 4096);  // and of a block.
  pages.mark(128 * 4096, 64 * 4096);             // A whole word.
  PageRuns runs = pages.runs();
  EXPECT_EQ(runs.take(0, 1), 1u);
  EXPECT_EQ(runs.take(62, 66), 4u);
  EXPECT_EQ(runs.take(128, 192), 64u);
  EXPECT_EQ(runs.take(0, 3 * block), 1u);
  EXPECT_EQ(runs.take(0, UINT64_MAX), 1u);
  EXPECT_EQ(TouchedPages(1 << 20).runs().take(0, UINT64_MAX), 0u);
}

TEST(PageRunsTest, APageIsTakenOnce) {
  PageRuns runs;
  runs.append(10, 20);
  runs.append(20, 30);
  runs.append(40, 50);
  EXPECT_EQ(runs.take(12, 14), 2u);
  EXPECT_EQ(runs.take(11, 15), 2u);
  EXPECT_EQ(runs.take(0, 10), 0u);
  EXPECT_EQ(runs.take(25, 45), 10u);
  EXPECT_EQ(runs.take(0, 100), 1u + 10u + 5u);
  EXPECT_EQ(runs.take(0, 100), 0u);
}

TEST(TouchedPagesTest, ManyThreadsCountEachPageOnce) {
  TouchedPages pages(64 << 20);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (uint64_t offset = 0; offset < 64 << 20; offset += 12'288) pages.mark(offset, 12'288);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(pages.count(), (64u << 20) / 4096);
}

}  // namespace
}  // namespace varve::fs
