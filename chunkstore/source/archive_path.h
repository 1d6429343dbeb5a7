#pragma once

#include <string>
#include <string_view>

#include "base/error.h"

namespace varve::chunkstore {

/// Longest name that EROFS and Linux take, bytes.
inline constexpr size_t kNameBytesMax = 255;
/// Longest symlink target that Linux takes, bytes.
inline constexpr size_t kLinkTargetBytesMax = 4095;

/// The form that Entry::path has, from a name as archives hold it: `.` components and repeated or
/// trailing slashes go; ``, `.`, `./` and `/` are the root.
///
/// Errors (kInvalidArgument, naming the name): absolute names, `..` components, a NUL byte, a
/// component longer than kNameBytesMax.
Result<std::string> normalise_archive_path(std::string_view name);

/// The directory that holds `path`; "" for a name in the root.
std::string_view parent_path(std::string_view path);
/// The last component of `path`.
std::string_view base_name(std::string_view path);
/// `directory`/`name`, right for the root too.
std::string join_path(std::string_view directory, std::string_view name);

}  // namespace varve::chunkstore
