#include "guard/masks.h"

namespace varve::guard {

std::span<const ProcMask> proc_masks() {
  static constexpr ProcMask kMasks[] = {
#define VARVE_MASK_FILE(path, reason) {path, false, reason},
#define VARVE_MASK_DIR(path, reason) {path, true, reason},
#include "guard/masks.def"
#undef VARVE_MASK_FILE
#undef VARVE_MASK_DIR
  };
  return kMasks;
}

std::span<const SysfsEntry> visible_sysfs() {
  static constexpr SysfsEntry kEntries[] = {
#define VARVE_SYSFS(path, reason) {path, reason},
#include "guard/sysfs.def"
#undef VARVE_SYSFS
  };
  return kEntries;
}

}  // namespace varve::guard
