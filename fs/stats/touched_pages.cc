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

bool TouchedPages::contains(uint64_t page) const {
  return page < page_count_ && (word(page / 64) >> (page % 64) & 1) != 0;
}

}  // namespace varve::fs
