#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"

namespace varve::launcher {

/// Each slot of the pool owns 64 Ki host ids for the image's ids 0–65,535 and a few more for larger
/// ones. The pool lies above what systemd-nspawn and distributions' subordinate ids use.
inline constexpr uint32_t kSlotCount = 4096;
inline constexpr uint32_t kIdsPerSlot = 65536;
inline constexpr uint32_t kFirstHostId = 0x7000'0000;
inline constexpr uint32_t kLargeIdsPerSlotMax = 300;
inline constexpr uint32_t kFirstLargeHostId = 0x8000'0000;

/// `count` ids from `inside` on appear on the host as `outside` and up.
struct IdExtent {
  uint32_t inside;
  uint32_t outside;
  uint32_t count;
  bool operator==(const IdExtent&) const = default;
};

/// The map of slot `slot` for an image in which `large_ids` (≥ 65,536, any order, duplicates
/// allowed) occur. Neighbouring ids share an extent.
///
/// Errors: kUnsupported when they are more than kLargeIdsPerSlotMax or than the one page that the
/// kernel takes as a map; the message names the first id that has no place.
Result<std::vector<IdExtent>> make_id_map(uint32_t slot, std::vector<uint32_t> large_ids);

/// The host's id of the image's id `inside`; absent when it has none.
std::optional<uint32_t> outside_id(const std::vector<IdExtent>& map, uint32_t inside);

/// As /proc/PID/uid_map takes it.
std::string id_map_text(const std::vector<IdExtent>& map);

}  // namespace varve::launcher
