#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

namespace varve::fs {

/// A set of pages, as runs of pages that follow one another. Loop-local.
class PageRuns {
 public:
  /// Adds the pages [first, end), which lie behind all that are there.
  void append(uint64_t first, uint64_t end);
  /// Takes away what is there of [first, end). @return how many pages that were.
  /// Cost: by the runs that go, not by the pages.
  uint64_t take(uint64_t first, uint64_t end);

 private:
  std::map<uint64_t, uint64_t> runs_;  // First page to the one behind the last.
};

/// Which 4 KiB pages of an image were asked for: a bitmap that grows by blocks where pages are
/// touched, so an idle layer holds 8 bytes for every 128 MiB. Thread-safe, without locks.
class TouchedPages {
 public:
  static constexpr uint64_t kPageBytes = 4096;

  explicit TouchedPages(uint64_t image_bytes);
  ~TouchedPages();
  TouchedPages(const TouchedPages&) = delete;
  TouchedPages& operator=(const TouchedPages&) = delete;

  /// Marks the pages that [offset, offset + size) meets; bytes past the image are ignored.
  void mark(uint64_t offset, uint64_t size);
  /// Distinct pages marked so far.
  uint64_t count() const { return count_.load(std::memory_order_relaxed); }
  bool contains(uint64_t page) const;
  /// All pages marked so far. Cost: by the blocks of the bitmap that there are.
  PageRuns runs() const;
  uint64_t page_count() const { return page_count_; }

 private:
  static constexpr size_t kWordsInBlock = 512;
  struct Block {
    std::atomic<uint64_t> words[kWordsInBlock]{};
  };

  Block& block(uint64_t index);
  uint64_t word(uint64_t index) const;

  const uint64_t page_count_;
  std::vector<std::atomic<Block*>> blocks_;
  std::atomic<uint64_t> count_{0};
};

}  // namespace varve::fs
