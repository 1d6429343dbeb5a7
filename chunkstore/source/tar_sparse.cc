// The sparse forms of tar::Reader, and the content stream that fills their holes.
#include <algorithm>
#include <charconv>
#include <cstring>

#include "chunkstore/source/tar_reader.h"

namespace varve::chunkstore::tar {
namespace {

// Old GNU form: 4 runs in the header, 21 in each extension block, each a pair of 12-byte numbers.
constexpr size_t kGnuRunsOffset = 386;
constexpr size_t kGnuHeaderRunCount = 4;
constexpr size_t kGnuIsExtendedOffset = 482;
constexpr Field kGnuRealSize{483, 12};
constexpr size_t kGnuBlockRunCount = 21;
constexpr size_t kGnuBlockIsExtendedOffset = 504;
constexpr size_t kGnuNumberBytes = 12;

tl::unexpected<Error> invalid(std::string message) {
  return fail(ErrorCode::kInvalidArgument, std::move(message));
}

Result<uint64_t> natural_at(const Block& block, size_t offset) {
  VARVE_ASSIGN(const int64_t value, number_field(block, {offset, kGnuNumberBytes}));
  if (value < 0) return invalid("sparse map holds a negative number");
  return static_cast<uint64_t>(value);
}

/// Appends up to `count` runs at `offset`; an all-zero field ends the list early.
Status append_gnu_runs(const Block& block, size_t offset, size_t count,
                       std::vector<SparseRun>& runs) {
  for (size_t i = 0; i < count; ++i, offset += 2 * kGnuNumberBytes) {
    if (block[offset + kGnuNumberBytes] == 0) break;
    if (runs.size() >= kSparseRunCountMax) return invalid("too many sparse runs");
    SparseRun run;
    VARVE_ASSIGN(run.offset, natural_at(block, offset));
    VARVE_ASSIGN(run.size, natural_at(block, offset + kGnuNumberBytes));
    runs.push_back(run);
  }
  return {};
}

}  // namespace

Status Reader::read_gnu_runs(const Block& block) {
  runs_.clear();
  VARVE_TRY(append_gnu_runs(block, kGnuRunsOffset, kGnuHeaderRunCount, runs_));
  bool is_extended = block[kGnuIsExtendedOffset] != 0;
  while (is_extended) {
    Block extension;
    VARVE_TRY(take(extension));
    VARVE_TRY(append_gnu_runs(extension, 0, kGnuBlockRunCount, runs_));
    is_extended = extension[kGnuBlockIsExtendedOffset] != 0;
    if (is_extended && runs_.size() >= kSparseRunCountMax) return invalid("too many sparse runs");
  }
  return {};
}

/// The next decimal line of a format 1.0 map; blocks are taken from the member's data as needed.
Result<std::string> Reader::read_map_number(Block& block, size_t& at) {
  std::string digits;
  for (;;) {
    if (at == kBlockBytes) {
      if (stored_left_ < kBlockBytes) return invalid("sparse map is longer than the member");
      VARVE_TRY(take(block));
      stored_left_ -= kBlockBytes;
      at = 0;
    }
    const char letter = static_cast<char>(block[at++]);
    if (letter == '\n') return digits;
    if (letter < '0' || letter > '9' || digits.size() >= 20) return invalid("bad sparse map");
    digits += letter;
  }
}

Status Reader::read_sparse_1_0_map() {
  Block block;
  size_t at = kBlockBytes;
  const auto number = [&]() -> Result<uint64_t> {
    VARVE_ASSIGN(const std::string digits, read_map_number(block, at));
    uint64_t value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error != std::errc() || end != digits.data() + digits.size()) {
      return invalid("bad sparse map");
    }
    return value;
  };
  VARVE_ASSIGN(const uint64_t count, number());
  if (count > kSparseRunCountMax) return invalid("too many sparse runs");
  runs_.clear();
  for (uint64_t i = 0; i < count; ++i) {
    SparseRun run;
    VARVE_ASSIGN(run.offset, number());
    VARVE_ASSIGN(run.size, number());
    runs_.push_back(run);
  }
  return {};
}

/// Runs ascend, do not overlap, end inside the file and cover exactly what is stored.
Status Reader::check_runs(const Member& member) const {
  uint64_t end = 0;
  uint64_t stored = 0;
  for (const SparseRun& run : runs_) {
    if (run.offset < end || run.offset > content_size_ || run.size > content_size_ - run.offset) {
      return invalid("sparse map of " + quoted(member.path) + " overlaps or leaves the file");
    }
    end = run.offset + run.size;
    stored += run.size;
  }
  if (stored != stored_left_) {
    return invalid("sparse map covers " + std::to_string(stored) + " bytes, the archive holds " +
                   std::to_string(stored_left_));
  }
  return {};
}

Status Reader::open_sparse(const Block& block, const PaxFields& fields, Member& member) {
  std::optional<uint64_t> real_size = fields.sparse_real_size;
  if (block[kTypeOffset] == 'S') {
    if (!real_size) {
      VARVE_ASSIGN(const int64_t size, number_field(block, kGnuRealSize));
      if (size < 0) return invalid("size is negative");
      real_size = static_cast<uint64_t>(size);
    }
    VARVE_TRY(read_gnu_runs(block));
  } else if (fields.sparse_major) {
    if (*fields.sparse_major != 1 || fields.sparse_minor.value_or(0) != 0) {
      return fail(ErrorCode::kUnsupported, "sparse format " + std::to_string(*fields.sparse_major) +
                                               "." +
                                               std::to_string(fields.sparse_minor.value_or(0)));
    }
    VARVE_TRY(read_sparse_1_0_map());
  } else if (fields.has_sparse_runs) {
    runs_ = fields.sparse_runs;
  } else {
    return {};
  }
  if (!real_size || *real_size > static_cast<uint64_t>(INT64_MAX)) {
    return invalid("sparse file without a usable size");
  }
  content_size_ = *real_size;
  return check_runs(member);
}

/// How many zeros follow that the archive does not hold.
uint64_t Reader::hole_bytes() {
  while (run_index_ < runs_.size() &&
         content_at_ >= runs_[run_index_].offset + runs_[run_index_].size) {
    ++run_index_;
  }
  if (run_index_ == runs_.size()) return content_size_ - content_at_;
  const uint64_t data_at = runs_[run_index_].offset;
  return data_at > content_at_ ? data_at - content_at_ : 0;
}

uint64_t Reader::skip_hole() {
  const uint64_t count = hole_bytes();
  content_at_ += count;
  return count;
}

Result<size_t> Reader::read_content(MutableByteView to) {
  const uint64_t left = content_size_ - content_at_;
  to = to.first(std::min<uint64_t>(to.size(), left));
  if (to.empty()) return size_t{0};
  if (const uint64_t zeros = hole_bytes(); zeros > 0) {
    const size_t count = std::min<uint64_t>(to.size(), zeros);
    std::memset(to.data(), 0, count);
    content_at_ += count;
    return count;
  }
  const SparseRun& run = runs_[run_index_];
  const size_t count = std::min<uint64_t>(to.size(), run.offset + run.size - content_at_);
  VARVE_ASSIGN(const size_t got, from_.read(to.first(count)));
  if (got == 0) return invalid("the archive is truncated");
  offset_ += got;
  stored_left_ -= got;
  content_at_ += got;
  return got;
}

}  // namespace varve::chunkstore::tar
