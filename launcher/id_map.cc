#include "launcher/id_map.h"

#include <algorithm>

#include "base/check.h"

namespace varve::launcher {
namespace {

// user_namespaces(7): a map is written at once and must be shorter than a page.
constexpr size_t kMapTextBytesMax = 4095;
// -1 is "no id" everywhere and cannot be mapped.
constexpr uint32_t kNoId = 0xffff'ffff;

std::string extent_text(const IdExtent& extent) {
  return std::to_string(extent.inside) + " " + std::to_string(extent.outside) + " " +
         std::to_string(extent.count) + "\n";
}

}  // namespace

Result<std::vector<IdExtent>> make_id_map(uint32_t slot, std::vector<uint32_t> large_ids) {
  VARVE_CHECK_OP(slot, <, kSlotCount);
  static_assert(kFirstHostId + uint64_t{kSlotCount} * kIdsPerSlot <= kFirstLargeHostId);
  static_assert(kFirstLargeHostId + uint64_t{kSlotCount} * kLargeIdsPerSlotMax < kNoId);
  std::sort(large_ids.begin(), large_ids.end());
  large_ids.erase(std::unique(large_ids.begin(), large_ids.end()), large_ids.end());

  std::vector<IdExtent> map{{0, kFirstHostId + slot * kIdsPerSlot, kIdsPerSlot}};
  uint32_t outside = kFirstLargeHostId + slot * kLargeIdsPerSlotMax;
  uint32_t placed = 0;
  for (const uint32_t id : large_ids) {
    if (id < kIdsPerSlot) continue;
    if (id == kNoId) {
      return fail(ErrorCode::kInvalidArgument, "the image uses id 4294967295, which means no id");
    }
    IdExtent& last = map.back();
    if (map.size() > 1 && last.inside + last.count == id) {
      ++last.count;
    } else {
      map.push_back({id, outside, 1});
    }
    ++outside;
    ++placed;
    if (placed > kLargeIdsPerSlotMax || id_map_text(map).size() > kMapTextBytesMax) {
      return fail(ErrorCode::kUnsupported,
                  "the image uses more ids above 65535 than a sandbox can map: no place for id " +
                      std::to_string(id) + " after " + std::to_string(placed - 1) + " others");
    }
  }
  return map;
}

std::optional<uint32_t> outside_id(const std::vector<IdExtent>& map, uint32_t inside) {
  for (const IdExtent& extent : map) {
    if (inside >= extent.inside && inside - extent.inside < extent.count) {
      return extent.outside + (inside - extent.inside);
    }
  }
  return std::nullopt;
}

std::string id_map_text(const std::vector<IdExtent>& map) {
  std::string text;
  for (const IdExtent& extent : map) text += extent_text(extent);
  return text;
}

}  // namespace varve::launcher
