#pragma once

#include <span>

namespace varve::guard {

/// One entry of /proc that is hidden from sandboxes; see masks.def for the list and its reasons.
struct ProcMask {
  const char* path;  ///< Below /proc.
  bool is_directory;
  const char* reason;
};
std::span<const ProcMask> proc_masks();

/// One part of /sys that sandboxes see; see sysfs.def.
struct SysfsEntry {
  const char* path;  ///< Below /sys.
  const char* reason;
};
std::span<const SysfsEntry> visible_sysfs();

}  // namespace varve::guard
