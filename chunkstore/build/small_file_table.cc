#include "chunkstore/build/small_file_table.h"

#include <cstring>

namespace varve::chunkstore {
namespace {

constexpr size_t kRecordBytes = sizeof(Digest) + sizeof(uint32_t);
constexpr size_t kFirstSlotCount = 1 << 12;
constexpr size_t kSpoolMemoryBytes = 8 << 20;

uint32_t tag_of(const Digest& digest) {
  return load_le<uint32_t>(digest.bytes.data());
}

}  // namespace

SmallFileTable::SmallFileTable(const std::string& temp_directory)
    : slots_(kFirstSlotCount), records_(kSpoolMemoryBytes, temp_directory) {}

Result<std::optional<uint32_t>> SmallFileTable::find(const Digest& digest) const {
  const uint32_t tag = tag_of(digest);
  const size_t mask = slots_.size() - 1;
  for (size_t i = tag & mask; slots_[i].index_plus_1 != 0; i = (i + 1) & mask) {
    if (slots_[i].tag != tag) continue;
    uint8_t record[kRecordBytes];
    VARVE_TRY(records_.read(uint64_t{slots_[i].index_plus_1 - 1} * kRecordBytes, record));
    if (std::memcmp(record, digest.bytes.data(), sizeof(Digest)) == 0)
      return load_le<uint32_t>(record + sizeof(Digest));
  }
  return std::nullopt;
}

Status SmallFileTable::insert(const Digest& digest, uint32_t block) {
  if (uint64_t{count_} + 1 > slots_.size() / 4 * 3) resize(slots_.size() * 2);
  uint8_t record[kRecordBytes];
  std::memcpy(record, digest.bytes.data(), sizeof(Digest));
  store_le(record + sizeof(Digest), block);
  VARVE_TRY(records_.append(record));
  place({tag_of(digest), ++count_});
  return {};
}

void SmallFileTable::place(Slot slot) {
  const size_t mask = slots_.size() - 1;
  size_t i = slot.tag & mask;
  while (slots_[i].index_plus_1 != 0) i = (i + 1) & mask;
  slots_[i] = slot;
}

void SmallFileTable::reserve(uint64_t count) {
  size_t slot_count = slots_.size();
  while (count > slot_count / 4 * 3) slot_count *= 2;
  if (slot_count > slots_.size()) resize(slot_count);
}

void SmallFileTable::resize(size_t slot_count) {
  std::vector<Slot> old(slot_count);
  old.swap(slots_);
  for (const Slot& slot : old) {
    if (slot.index_plus_1 != 0) place(slot);
  }
}

}  // namespace varve::chunkstore
