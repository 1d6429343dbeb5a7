#include "chunkstore/build/external_sorter.h"

#include <zstd.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/file_io.h"

namespace varve::chunkstore {
namespace {

constexpr size_t kBlockBytes = 1 << 20;
// Raw bytes of one compressed piece of a run; a merge holds one of them for each run.
constexpr size_t kPieceBytes = 128 << 10;
constexpr size_t kRunCountMax = 64;
constexpr int kSpillLevel = 1;
constexpr size_t kRecordHeadBytes = 8;

// A record: u32 key size, u32 value size, key, value.
ByteView record_key(const uint8_t* record) {
  return {record + kRecordHeadBytes, load_le<uint32_t>(record)};
}
ByteView record_value(const uint8_t* record) {
  return {record + kRecordHeadBytes + load_le<uint32_t>(record), load_le<uint32_t>(record + 4)};
}
size_t record_size(const uint8_t* record) {
  return kRecordHeadBytes + size_t{load_le<uint32_t>(record)} + load_le<uint32_t>(record + 4);
}

int compare(ByteView a, ByteView b) {
  const size_t common = std::min(a.size(), b.size());
  const int order = common == 0 ? 0 : std::memcmp(a.data(), b.data(), common);
  if (order != 0) return order;
  return a.size() < b.size() ? -1 : (a.size() > b.size() ? 1 : 0);
}

uint64_t key_prefix(ByteView key) {
  uint8_t first[8] = {};
  if (!key.empty()) std::memcpy(first, key.data(), std::min<size_t>(8, key.size()));
  return __builtin_bswap64(load_le<uint64_t>(first));
}

}  // namespace

/// Writes one run, piece by piece: u32 compressed size, u32 raw size, zstd frame.
class ExternalSorter::RunWriter {
 public:
  explicit RunWriter(ExternalSorter& sorter) : sorter_(sorter), start_(sorter.file_size_) {
    piece_.reserve(kPieceBytes);
  }
  Status add(const uint8_t* record) {
    const size_t size = record_size(record);
    if (!piece_.empty() && piece_.size() + size > kPieceBytes) VARVE_TRY(flush());
    append(piece_, {record, size});
    return {};
  }
  Result<Run> finish() {
    if (!piece_.empty()) VARVE_TRY(flush());
    return Run{start_, sorter_.file_size_ - start_};
  }

 private:
  Status flush() {
    compressed_.resize(8 + ZSTD_compressBound(piece_.size()));
    const size_t size = ZSTD_compress(compressed_.data() + 8, compressed_.size() - 8, piece_.data(),
                                      piece_.size(), kSpillLevel);
    if (ZSTD_isError(size) != 0) return fail(ErrorCode::kInternal, ZSTD_getErrorName(size));
    store_le(compressed_.data(), static_cast<uint32_t>(size));
    store_le(compressed_.data() + 4, static_cast<uint32_t>(piece_.size()));
    const ByteView whole(compressed_.data(), 8 + size);
    if (Status status = pwrite_all(sorter_.file_.get(), sorter_.file_size_, whole); !status)
      return fail(std::move(status).error(),
                  "spilling to a temporary file in " + quoted(sorter_.temp_directory_));
    sorter_.file_size_ += whole.size();
    piece_.clear();
    return {};
  }

  ExternalSorter& sorter_;
  uint64_t start_;
  Bytes piece_;
  Bytes compressed_;
};

ExternalSorter::ExternalSorter(size_t memory_bytes_max, std::string temp_directory)
    : memory_bytes_max_(memory_bytes_max), temp_directory_(std::move(temp_directory)) {}
ExternalSorter::~ExternalSorter() = default;
ExternalSorter::ExternalSorter(ExternalSorter&&) noexcept = default;
ExternalSorter& ExternalSorter::operator=(ExternalSorter&&) noexcept = default;

uint8_t* ExternalSorter::allocate(size_t size) {
  if (size > block_free_) {
    const size_t block_size = std::max(size, kBlockBytes);
    blocks_.push_back(std::make_unique_for_overwrite<uint8_t[]>(block_size));
    block_position_ = blocks_.back().get();
    block_free_ = block_size;
    block_bytes_ += block_size;
  }
  uint8_t* const start = block_position_;
  block_position_ += size;
  block_free_ -= size;
  return start;
}

Status ExternalSorter::add(ByteView key, ByteView value) {
  VARVE_CHECK(key.size() <= UINT32_MAX && value.size() <= UINT32_MAX);
  const size_t size = kRecordHeadBytes + key.size() + value.size();
  // The index may be copied while it grows, so each entry counts twice.
  const size_t used = block_bytes_ - block_free_ + 2 * sizeof(IndexEntry) * (index_.size() + 1);
  if (!index_.empty() && used + size > memory_bytes_max_) VARVE_TRY(spill());
  uint8_t* const record = allocate(size);
  store_le(record, static_cast<uint32_t>(key.size()));
  store_le(record + 4, static_cast<uint32_t>(value.size()));
  if (!key.empty()) std::memcpy(record + kRecordHeadBytes, key.data(), key.size());
  if (!value.empty())
    std::memcpy(record + kRecordHeadBytes + key.size(), value.data(), value.size());
  index_.push_back({key_prefix(key), record});
  ++record_count_;
  return {};
}

void ExternalSorter::sort_memory() {
  const auto before = [](const IndexEntry& a, const IndexEntry& b) {
    if (a.prefix != b.prefix) return a.prefix < b.prefix;
    return compare(record_key(a.record), record_key(b.record)) < 0;
  };
  // Sources mostly come sorted already, or nearly so.
  if (!std::is_sorted(index_.begin(), index_.end(), before))
    std::stable_sort(index_.begin(), index_.end(), before);
}

void ExternalSorter::release_memory() {
  blocks_.clear();
  block_free_ = 0;
  block_bytes_ = 0;
  block_position_ = nullptr;
  std::vector<IndexEntry>().swap(index_);
}

Status ExternalSorter::spill() {
  if (!file_) {
    VARVE_ASSIGN(file_, open_unlinked_temp(temp_directory_));
  }
  sort_memory();
  RunWriter writer(*this);
  for (const IndexEntry& entry : index_) VARVE_TRY(writer.add(entry.record));
  VARVE_ASSIGN(const Run run, writer.finish());
  runs_.push_back(run);
  release_memory();
  if (runs_.size() >= kRunCountMax) VARVE_TRY(merge_runs());
  return {};
}

Status ExternalSorter::merge_runs() {
  VARVE_ASSIGN(SortedCursor cursor, open());
  RunWriter writer(*this);
  Bytes record;
  while (cursor.valid()) {
    record.clear();
    append_le(record, static_cast<uint32_t>(cursor.key().size()));
    append_le(record, static_cast<uint32_t>(cursor.value().size()));
    append(record, cursor.key());
    append(record, cursor.value());
    VARVE_TRY(writer.add(record.data()));
    VARVE_TRY(cursor.next());
  }
  VARVE_ASSIGN(const Run run, writer.finish());
  runs_.assign(1, run);
  return {};
}

Status ExternalSorter::finish() {
  if (runs_.empty()) {
    sort_memory();
    return {};
  }
  return index_.empty() ? Status() : spill();
}

Result<SortedCursor> ExternalSorter::open() const {
  SortedCursor cursor(*this);
  VARVE_TRY(cursor.start());
  return cursor;
}

/// One run being read; holds one piece of it.
struct SortedCursor::RunReader {
  RunReader(const ExternalSorter& from, size_t run_index)
      : sorter(from),
        index(run_index),
        next_offset(from.runs_[run_index].offset),
        end(next_offset + from.runs_[run_index].size) {}

  /// Moves to the next record; false at the end of the run.
  Result<bool> advance() {
    if (record != nullptr) position += record_size(record);
    record = nullptr;
    if (position == piece.size()) {
      if (next_offset == end) return false;
      VARVE_TRY(load_piece());
    }
    record = piece.data() + position;
    prefix = key_prefix(record_key(record));
    return true;
  }

  Status load_piece() {
    uint8_t head[8];
    VARVE_TRY(pread_exact(sorter.file_.get(), next_offset, head));
    compressed.resize(load_le<uint32_t>(head));
    piece.resize(load_le<uint32_t>(head + 4));
    VARVE_TRY(pread_exact(sorter.file_.get(), next_offset + 8, compressed));
    const size_t size =
        ZSTD_decompress(piece.data(), piece.size(), compressed.data(), compressed.size());
    if (ZSTD_isError(size) != 0 || size != piece.size())
      return fail(ErrorCode::kCorruption,
                  "temporary file in " + quoted(sorter.temp_directory_) + " was changed");
    next_offset += 8 + compressed.size();
    position = 0;
    return {};
  }

  /// For a heap whose top is the smallest record; equal keys in order of their runs.
  static bool after(const std::unique_ptr<RunReader>& a, const std::unique_ptr<RunReader>& b) {
    if (a->prefix != b->prefix) return a->prefix > b->prefix;
    const int order = compare(record_key(a->record), record_key(b->record));
    return order != 0 ? order > 0 : a->index > b->index;
  }

  const ExternalSorter& sorter;
  size_t index;
  uint64_t next_offset;
  uint64_t end;
  Bytes compressed;
  Bytes piece;
  size_t position = 0;
  const uint8_t* record = nullptr;
  uint64_t prefix = 0;
};

SortedCursor::SortedCursor(const ExternalSorter& sorter) : sorter_(&sorter) {}
SortedCursor::SortedCursor(SortedCursor&&) noexcept = default;
SortedCursor& SortedCursor::operator=(SortedCursor&&) noexcept = default;
SortedCursor::~SortedCursor() = default;

Status SortedCursor::start() {
  if (sorter_->runs_.empty()) {
    show_memory_record();
    return {};
  }
  for (size_t i = 0; i < sorter_->runs_.size(); ++i) {
    auto reader = std::make_unique<RunReader>(*sorter_, i);
    VARVE_ASSIGN(const bool has_record, reader->advance());
    if (has_record) heap_.push_back(std::move(reader));
  }
  std::make_heap(heap_.begin(), heap_.end(), RunReader::after);
  show_top();
  return {};
}

void SortedCursor::show_memory_record() {
  is_valid_ = memory_position_ < sorter_->index_.size();
  if (!is_valid_) return;
  const uint8_t* record = sorter_->index_[memory_position_].record;
  key_ = record_key(record);
  value_ = record_value(record);
}

void SortedCursor::show_top() {
  is_valid_ = !heap_.empty();
  if (!is_valid_) return;
  key_ = record_key(heap_.front()->record);
  value_ = record_value(heap_.front()->record);
}

Status SortedCursor::next() {
  VARVE_CHECK(is_valid_);
  if (sorter_->runs_.empty()) {
    ++memory_position_;
    show_memory_record();
    return {};
  }
  std::pop_heap(heap_.begin(), heap_.end(), RunReader::after);
  VARVE_ASSIGN(const bool has_record, heap_.back()->advance());
  if (has_record) {
    std::push_heap(heap_.begin(), heap_.end(), RunReader::after);
  } else {
    heap_.pop_back();
  }
  show_top();
  return {};
}

}  // namespace varve::chunkstore
