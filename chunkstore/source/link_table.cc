#include "chunkstore/source/link_table.h"

#include <unistd.h>

#include <algorithm>
#include <vector>

#include "base/bytes.h"
#include "base/file_io.h"
#include "base/hash.h"

namespace varve::chunkstore {
namespace {

constexpr uint64_t kSlotCountMin = 1024;
constexpr uint64_t kGrowth = 4;
constexpr size_t kSlotsPerRead = 2048;

}  // namespace

/// As it lies in the file, of which holes are free slots.
struct LinkTable::Slot {
  uint64_t number = 0;  // 0: free.
  uint64_t device = 0;
  uint64_t name_offset = 0;
  uint32_t name_bytes = 0;
  uint32_t names_left = 0;

  bool is_of(const Inode& inode) const { return number == inode.number && device == inode.device; }
};

struct LinkTable::Place {
  uint64_t index = 0;
  Slot slot;
};

namespace {

template <class T>
ByteView bytes_of(const T& value) {
  return {reinterpret_cast<const uint8_t*>(&value), sizeof value};
}
template <class T>
MutableByteView bytes_to(T& value) {
  return {reinterpret_cast<uint8_t*>(&value), sizeof value};
}

}  // namespace

/// The slot of the inode, or the free one that it would get.
Result<LinkTable::Place> LinkTable::find(const UniqueFd& slots, uint64_t slot_count,
                                         const Inode& inode) const {
  const uint64_t key[2] = {inode.device, inode.number};
  Place place;
  for (place.index = xxh3_64(bytes_of(key));; ++place.index) {
    place.index &= slot_count - 1;
    VARVE_TRY(pread_exact(slots.get(), place.index * sizeof(Slot), bytes_to(place.slot)));
    if (place.slot.number == 0 || place.slot.is_of(inode)) return place;
  }
}

Status LinkTable::grow() {
  VARVE_ASSIGN(UniqueFd bigger, open_unlinked_temp(temp_directory_));
  const uint64_t count = std::max(kSlotCountMin, slot_count_ * kGrowth);
  if (::ftruncate(bigger.get(), static_cast<off_t>(count * sizeof(Slot))) != 0) {
    return fail_errno("growing a temporary file");
  }
  if (!names_) {
    VARVE_ASSIGN(names_, open_unlinked_temp(temp_directory_));
  }
  uint64_t kept_count = 0;
  std::vector<Slot> slots(kSlotsPerRead);
  for (uint64_t at = 0; at < slot_count_; at += slots.size()) {
    slots.resize(std::min<uint64_t>(kSlotsPerRead, slot_count_ - at));
    VARVE_TRY(pread_exact(slots_.get(), at * sizeof(Slot),
                          {reinterpret_cast<uint8_t*>(slots.data()), slots.size() * sizeof(Slot)}));
    for (const Slot& slot : slots) {
      if (slot.names_left == 0) continue;
      VARVE_ASSIGN(const Place place, find(bigger, count, {slot.device, slot.number}));
      VARVE_TRY(pwrite_all(bigger.get(), place.index * sizeof(Slot), bytes_of(slot)));
      ++kept_count;
    }
  }
  slots_ = std::move(bigger);
  slot_count_ = count;
  used_count_ = kept_count;
  return {};
}

Status LinkTable::record(const Inode& inode, std::string_view name, Place place) {
  if (place.slot.number == 0) ++used_count_;
  place.slot = {.number = inode.number,
                .device = inode.device,
                .name_offset = name_bytes_,
                .name_bytes = static_cast<uint32_t>(name.size()),
                .names_left = inode.link_count - 1};
  VARVE_TRY(pwrite_all(names_.get(), name_bytes_, as_bytes(name)));
  name_bytes_ += name.size();
  return pwrite_all(slots_.get(), place.index * sizeof(Slot), bytes_of(place.slot));
}

Result<std::optional<std::string>> LinkTable::add_name(const Inode& inode, std::string_view name) {
  const std::pair key(inode.device, inode.number);
  const auto group = groups_.find(key);
  if (group != groups_.end()) {
    std::string first = group->second.first_name;
    if (--group->second.names_left == 0) groups_.erase(group);
    return std::optional<std::string>(std::move(first));
  }
  if (slot_count_ > 0 || groups_.size() >= memory_count_max_) return add_name_on_disk(inode, name);
  if (inode.link_count > 1)
    groups_.try_emplace(key, Group{std::string(name), inode.link_count - 1});
  return std::optional<std::string>();
}

Result<std::optional<std::string>> LinkTable::add_name_on_disk(const Inode& inode,
                                                               std::string_view name) {
  // Half of the slots are free, so that a search meets one soon.
  if (used_count_ * 2 >= slot_count_) VARVE_TRY(grow());
  VARVE_ASSIGN(Place place, find(slots_, slot_count_, inode));
  if (place.slot.number == 0 || place.slot.names_left == 0) {
    VARVE_TRY(record(inode, name, place));
    return std::optional<std::string>();
  }
  --place.slot.names_left;
  VARVE_TRY(pwrite_all(slots_.get(), place.index * sizeof(Slot), bytes_of(place.slot)));
  std::string first(place.slot.name_bytes, '\0');
  VARVE_TRY(pread_exact(names_.get(), place.slot.name_offset,
                        {reinterpret_cast<uint8_t*>(first.data()), first.size()}));
  return std::optional<std::string>(std::move(first));
}

}  // namespace varve::chunkstore
