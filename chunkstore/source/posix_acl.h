#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"

namespace varve::chunkstore {

inline constexpr std::string_view kAclAccessXattr = "system.posix_acl_access";
inline constexpr std::string_view kAclDefaultXattr = "system.posix_acl_default";

/// A POSIX ACL read from text.
struct ParsedAcl {
  /// The value of the xattr (version 2 of the kernel's posix_acl_xattr format), byte for byte what
  /// the kernel returns for such an ACL: owner, users by id, group, groups by id, mask, other.
  std::string xattr;
  /// Nothing but owner, group and other: the kernel keeps such an access ACL in the mode only.
  bool is_minimal = false;
  /// The permission bits (0777) that the ACL stands for.
  uint16_t mode_bits = 0;
};

/// Reads the text of a `SCHILY.acl.*` record: entries such as `user::rwx`, `user:1000:r-x`,
/// `group:name:r--:50`, `mask::r-x`, separated by newlines or commas; `#` starts a comment.
///
/// Names are never looked up on this host: an entry needs a number in the second field, or in the
/// fourth as star writes it (which wins). Errors: kInvalidArgument.
/// Source: acl(5), the format of star and GNU tar.
Result<ParsedAcl> parse_acl_text(std::string_view text);

/// The text of `xattr`, numeric ids, one entry a line; nothing when the value is not a valid ACL.
std::optional<std::string> format_acl_text(std::string_view xattr);

}  // namespace varve::chunkstore
