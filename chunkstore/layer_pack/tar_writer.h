#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "base/bytes.h"
#include "base/error.h"

namespace varve::layer_pack {

/// What a tar member says; `type` as in the ustar header ('0' regular … '6' fifo). Value type.
struct TarEntry {
  std::string path;  ///< As it stands in the archive.
  char type = '0';
  uint16_t mode = 0;
  uint32_t uid = 0;
  uint32_t gid = 0;
  int64_t mtime_s = 0;
  uint32_t mtime_ns = 0;
  uint32_t dev_major = 0;
  uint32_t dev_minor = 0;
  uint64_t size = 0;      ///< Regular files only.
  std::string link_path;  ///< Symlinks and hard links.
  std::map<std::string, std::string> xattrs;
};

/// Writes a POSIX (pax) tar that GNU tar, star and libarchive read with all its attributes: xattrs
/// as `SCHILY.xattr.*` with GNU tar's escaping of names, ACLs as `SCHILY.acl.*`. The bytes depend
/// on the entries alone. Loop-local. Source: pax(1) in POSIX.1-2017; GNU tar manual, "Extended File
/// Attributes".
class TarWriter {
 public:
  using Sink = std::function<Status(ByteView)>;
  explicit TarWriter(Sink sink) : sink_(std::move(sink)) {}

  /// Begins an entry; exactly `entry.size` bytes of content must follow.
  Status add(const TarEntry& entry);
  Status write_content(ByteView bytes);
  /// The end mark, padded to a record of 10,240 bytes.
  Status finish();

 private:
  Status write(ByteView bytes);
  Status write_padding();

  Sink sink_;
  uint64_t written_ = 0;
  uint64_t content_left_ = 0;
};

}  // namespace varve::layer_pack
