#include "fs/stats/touched_pages.h"

#include <algorithm>
#include <bit>

namespace varve::fs {
namespace {

// The bits [first, end) of a word, 0 ≤ first < end ≤ 64.
uint64_t bit_range(uint64_t first, uint64_t end) {
  const uint64_t below_end = end == 64 ? ~uint64_t{0} : (uint64_t{1} << end) - 1;
  return below_end & ~((uint64_t{1} << first) - 1);
}

}  // namespace

void PageRuns::append(uint64_t first, uint64_t end) {
  if (!runs_.empty() && runs_.rbegin()->second == first) {
    runs_.rbegin()->second = end;
  } else {
    runs_.emplace_hint(runs_.end(), first, end);
  }
}

uint64_t PageRuns::take(uint64_t first, uint64_t end) {
  uint64_t count = 0;
  auto at = runs_.upper_bound(first);
  if (at != runs_.begin() && std::prev(at)->second > first) --at;
  while (at != runs_.end() && at->first < end) {
    const auto [run_first, run_end] = *at;
    at = runs_.erase(at);
    if (run_first < first) runs_.emplace(run_first, first);
    if (run_end > end) at = runs_.emplace(end, run_end).first;
    count += std::min(run_end, end) - std::max(run_first, first);
  }
  return count;
}

TouchedPages::TouchedPages(uint64_t image_bytes)
    : page_count_((image_bytes + kPageBytes - 1) / kPageBytes),
      blocks_((page_count_ + kWordsInBlock * 64 - 1) / (kWordsInBlock * 64)) {}

TouchedPages::~TouchedPages() {
  for (auto& block : blocks_) delete block.load(std::memory_order_relaxed);
}

TouchedPages::Block& TouchedPages::block(uint64_t index) {
  std::atomic<Block*>& slot = blocks_[index];
  Block* block = slot.load(std::memory_order_acquire);
  if (block != nullptr) return *block;
  auto fresh = std::make_unique<Block>();
  if (slot.compare_exchange_strong(block, fresh.get(), std::memory_order_acq_rel)) {
    return *fresh.release();
  }
  return *block;
}

uint64_t TouchedPages::word(uint64_t index) const {
  const Block* block = blocks_[index / kWordsInBlock].load(std::memory_order_acquire);
  return block == nullptr ? 0 : block->words[index % kWordsInBlock].load(std::memory_order_relaxed);
}

void TouchedPages::mark(uint64_t offset, uint64_t size) {
  if (size == 0 || offset / kPageBytes >= page_count_) return;
  const uint64_t image_end = page_count_ * kPageBytes;
  const uint64_t end = size > image_end - offset ? image_end : offset + size;
  const uint64_t end_page = (end + kPageBytes - 1) / kPageBytes;
  for (uint64_t page = offset / kPageBytes; page < end_page;) {
    const uint64_t word_index = page / 64;
    const uint64_t word_end = std::min(end_page, (word_index + 1) * 64);
    const uint64_t bits = bit_range(page % 64, word_end - word_index * 64);
    auto& word = block(word_index / kWordsInBlock).words[word_index % kWordsInBlock];
    const uint64_t before = word.fetch_or(bits, std::memory_order_relaxed);
    count_.fetch_add(static_cast<uint64_t>(std::popcount(bits & ~before)),
                     std::memory_order_relaxed);
    page = word_end;
  }
}

PageRuns TouchedPages::runs() const {
  PageRuns runs;
  for (uint64_t block = 0; block < blocks_.size(); ++block) {
    if (blocks_[block].load(std::memory_order_acquire) == nullptr) continue;
    for (uint64_t i = block * kWordsInBlock; i < (block + 1) * kWordsInBlock; ++i) {
      uint64_t bits = word(i);
      for (unsigned at = 0; bits != 0;) {
        const auto gap = static_cast<unsigned>(std::countr_zero(bits));
        const auto size = static_cast<unsigned>(std::countr_one(bits >> gap));
        runs.append(i * 64 + at + gap, i * 64 + at + gap + size);
        at += gap + size;
        bits = gap + size == 64 ? 0 : bits >> (gap + size);
      }
    }
  }
  return runs;
}

bool TouchedPages::contains(uint64_t page) const {
  return page < page_count_ && (word(page / 64) >> (page % 64) & 1) != 0;
}

}  // namespace varve::fs
