#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/unique_fd.h"

namespace varve::chunkstore {

/// Which inodes with several names a walk has met, and under which name first. Those that exceed a
/// number are kept by a hash table in an unlinked file. Loop-local.
class LinkTable {
 public:
  struct Inode {
    uint64_t device = 0;
    uint64_t number = 0;  ///< Not 0.
    uint32_t link_count = 0;
  };

  /// Inodes in memory: some 30 MB with names as they usually are.
  static constexpr size_t kMemoryCountMax = size_t{1} << 18;

  explicit LinkTable(std::string temp_directory, size_t memory_count_max = kMemoryCountMax)
      : temp_directory_(std::move(temp_directory)), memory_count_max_(memory_count_max) {}

  /// Counts one more name of `inode`. @return the name it was first found under; nothing when that
  /// is `name`. After `link_count` names it is forgotten: who has its number then is another one.
  /// Errors: of the temporary files.
  Result<std::optional<std::string>> add_name(const Inode& inode, std::string_view name);

 private:
  struct Group {
    std::string first_name;
    uint32_t names_left = 0;  ///< At most: some may lie outside the tree.
  };
  struct Slot;
  struct Place;

  Result<std::optional<std::string>> add_name_on_disk(const Inode& inode, std::string_view name);
  Status grow();
  Result<Place> find(const UniqueFd& slots, uint64_t slot_count, const Inode& inode) const;
  Status record(const Inode& inode, std::string_view name, Place place);

  const std::string temp_directory_;
  const size_t memory_count_max_;
  std::map<std::pair<uint64_t, uint64_t>, Group> groups_;  // By device and number.
  UniqueFd slots_;
  UniqueFd names_;
  uint64_t slot_count_ = 0;  ///< A power of two, or 0.
  uint64_t used_count_ = 0;
  uint64_t name_bytes_ = 0;
};

}  // namespace varve::chunkstore
