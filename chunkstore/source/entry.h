#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "base/bytes.h"
#include "base/error.h"

namespace varve::chunkstore {

enum class EntryType : uint8_t {
  kRegular,
  kDirectory,
  kSymlink,
  kCharDevice,
  kBlockDevice,
  kFifo,
  kSocket,
  kHardLink,  ///< `target` is the path of another entry of the same source.
  kWhiteout,  ///< Hides `path` of the layers below; not content of the source.
  kOpaque,    ///< Marks directory `path` opaque; carries no attributes of its own.
};

/// Bytes of one regular file that arrive in order, e.g. from a tar. Valid only during
/// EntrySink::add. Loop-local.
class ContentStream {
 public:
  virtual ~ContentStream() = default;
  /// Fills the front of `to`; 0 at the end of the file.
  virtual Result<size_t> read(MutableByteView to) = 0;
};

/// Bytes of one regular file that can be opened later, from any thread, as often as needed.
/// Thread-safe.
class DeferredContent {
 public:
  virtual ~DeferredContent() = default;
  /// Errors name the path. A file that changed since the entry was made (size, mtime, ctime, type)
  /// is kInvalidArgument: the image would not be a state that ever was.
  virtual Result<std::unique_ptr<ContentStream>> open() const = 0;
};

/// One path of a source tree, as a builder takes it. Value type.
struct Entry {
  /// Relative to the root, bytes as they are, components separated by single '/'; "" is the root.
  /// Never "." or ".." components, never absolute: sources refuse those and name them.
  std::string path;
  EntryType type = EntryType::kRegular;
  uint16_t mode = 0;  ///< Permission bits, 07777.
  uint32_t uid = 0;
  uint32_t gid = 0;
  int64_t mtime_s = 0;  ///< Seconds since 1970, may be negative.
  uint32_t mtime_ns = 0;
  uint32_t rdev_major = 0;
  uint32_t rdev_minor = 0;
  uint64_t size = 0;   ///< Regular files only, bytes.
  std::string target;  ///< Symlink target, or path of the hard link's other name.
  /// Full names (`user.x`, `security.capability`, `system.posix_acl_access`), bytes as they are.
  /// Content named `trusted.overlay.*` is escaped by the builder, not by sources.
  std::map<std::string, std::string> xattrs;
  /// For kRegular with size > 0: exactly one of the two is set.
  ContentStream* stream = nullptr;
  std::shared_ptr<const DeferredContent> deferred;
};

/// Where a source puts its entries, in any order; the same path may come twice (the last wins).
class EntrySink {
 public:
  virtual ~EntrySink() = default;
  /// Takes one entry and reads `entry.stream` to its end. Errors name the path and end the build.
  virtual Status add(Entry entry) = 0;
};

/// A tree to pack.
class EntrySource {
 public:
  virtual ~EntrySource() = default;
  /// Puts every entry into `sink`. Loop-local, called once.
  virtual Status read_into(EntrySink& sink) = 0;
};

}  // namespace varve::chunkstore
