#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"
#include "chunkstore/source/entry.h"

namespace varve::chunkstore {

/// Where the bytes of a regular file are, while a layer is made.
enum class ContentKind : uint8_t {
  kNone,         ///< No bytes.
  kSmallStream,  ///< In the content sorter.
  kLargeStream,  ///< Cut and submitted; content_index names its CutFile.
  kDeferred,     ///< To be read: content_index names the source, content_key the file.
  kPlacedPlain,  ///< Blocks in a row from placed_blocks[0] on (flatten).
  kPlacedMap,    ///< Chunks of 4 KiB << content_index at placed_blocks (flatten).
};

/// An inode to be: what an entry says, checked and in the form that is written. Value type.
struct Node {
  uint32_t mode = 0;  ///< With the type.
  uint32_t uid = 0;
  uint32_t gid = 0;
  int64_t mtime_s = 0;
  uint32_t mtime_ns = 0;
  uint32_t rdev = 0;
  uint64_t size = 0;    ///< Regular files and symlinks, bytes.
  std::string target;   ///< Symlinks.
  Bytes xattr_entries;  ///< On-disk inline xattrs without their header.
  ContentKind content = ContentKind::kNone;
  uint32_t content_index = 0;
  std::string content_key;
  std::vector<uint32_t> placed_blocks;  ///< From the start of the data region; kNullBlock: a hole.

  /// Compact form for sorters; only decode() reads it.
  void encode(Bytes& to) const;
  /// `from` came from encode().
  static Node decode(ByteView from);
};

/// Adds one on-disk xattr entry. Errors (kInvalidArgument): a name or value outside the format or
/// Linux's limits, or a total that no longer fits.
Status append_xattr(Bytes& entries, std::string_view name, std::string_view value);
/// The entries for `xattrs`, content named `trusted.overlay.*` escaped as overlayfs defines, in
/// bytewise order of their final names. Errors as append_xattr.
Result<Bytes> encode_xattrs(const std::map<std::string, std::string>& xattrs);

/// The ids of users and groups that POSIX ACLs among on-disk xattr `entries` name. A value that is
/// not an ACL of the version that Linux has names none.
std::vector<uint32_t> acl_ids(ByteView entries);

/// The mark of an opaque directory.
inline constexpr std::string_view kOpaqueXattr = "trusted.overlay.opaque";
inline constexpr std::string_view kOpaqueXattrValue = "y";
/// The mark (with an empty value) of a directory that holds whiteouts: see LayerBuilder.
inline constexpr std::string_view kOriginXattr = "trusted.overlay.origin";

/// Checks `entry` against the format and turns it into a node without content.
/// Errors (kInvalidArgument) do not name the path: the caller does.
Result<Node> node_of_entry(const Entry& entry);
/// kInvalidArgument for a path that is no Entry::path: empty, `.`, `..` or over-long components, a
/// NUL, slashes at its ends, or more than erofs::kPathBytesMax bytes.
Status check_path(std::string_view path);

}  // namespace varve::chunkstore
