#include "chunkstore/source/overlay_upper.h"

#include <string_view>

#include "base/bytes.h"

namespace varve::chunkstore {
namespace {

constexpr std::string_view kTrustedPrefix = "trusted.overlay.";
constexpr std::string_view kUserPrefix = "user.overlay.";
constexpr std::string_view kEscape = "overlay.";

struct Marks {
  bool is_opaque = false;
  bool is_whiteout = false;
};

Status apply_mark(std::string_view mark, std::string_view value, Marks& marks) {
  if (mark == "opaque") {
    // "x" only announces that the directory may hold whiteouts in the form of attributes.
    if (value == "y") {
      marks.is_opaque = true;
    } else if (value != "x") {
      return fail(ErrorCode::kUnsupported, "overlay.opaque has the unknown value " + quoted(value));
    }
  } else if (mark == "whiteout") {
    marks.is_whiteout = true;
  } else if (mark == "redirect" || mark == "metacopy") {
    return fail(ErrorCode::kUnsupported, "overlay." + std::string(mark) +
                                             " in the upper directory: mount the overlay with "
                                             "redirect_dir=nofollow,metacopy=off");
  }
  return {};
}

}  // namespace

bool is_whiteout_device(const Entry& entry) {
  return entry.type == EntryType::kCharDevice && entry.rdev_major == 0 && entry.rdev_minor == 0;
}

Result<bool> apply_upper_marks(Entry& entry, bool has_user_marks) {
  Marks marks;
  std::map<std::string, std::string> kept;
  for (auto& [name, value] : entry.xattrs) {
    std::string_view prefix = kTrustedPrefix;
    if (has_user_marks && name.starts_with(kUserPrefix)) prefix = kUserPrefix;
    if (!name.starts_with(prefix)) {
      kept.emplace(name, std::move(value));
      continue;
    }
    const std::string_view mark = std::string_view(name).substr(prefix.size());
    if (mark.starts_with(kEscape)) {
      kept.emplace(std::string(prefix) + std::string(mark.substr(kEscape.size())),
                   std::move(value));
    } else {
      VARVE_TRY(apply_mark(mark, value, marks));
    }
  }
  entry.xattrs = std::move(kept);
  const bool is_marked_file =
      marks.is_whiteout && entry.type == EntryType::kRegular && entry.size == 0;
  if (is_whiteout_device(entry) || is_marked_file) {
    Entry whiteout;
    whiteout.path = std::move(entry.path);
    whiteout.type = EntryType::kWhiteout;
    entry = std::move(whiteout);
    return false;
  }
  return marks.is_opaque && entry.type == EntryType::kDirectory;
}

}  // namespace varve::chunkstore
