#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

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

/// What the type bits of a st_mode stand for; nothing for a type that Linux does not have.
inline std::optional<EntryType> entry_type_of_mode(uint32_t mode) {
  switch (mode & S_IFMT) {
    case S_IFREG:
      return EntryType::kRegular;
    case S_IFDIR:
      return EntryType::kDirectory;
    case S_IFLNK:
      return EntryType::kSymlink;
    case S_IFCHR:
      return EntryType::kCharDevice;
    case S_IFBLK:
      return EntryType::kBlockDevice;
    case S_IFIFO:
      return EntryType::kFifo;
    case S_IFSOCK:
      return EntryType::kSocket;
    default:
      return {};
  }
}

/// Bytes of one regular file that arrive in order, e.g. from a tar. Loop-local.
class ContentStream {
 public:
  virtual ~ContentStream() = default;
  /// Fills the front of `to`; 0 at the end of the file. A file that proves shorter or longer than
  /// its entry said is an error that names the path.
  virtual Result<size_t> read(MutableByteView to) = 0;
  /// Moves past zeros that begin at the current position and need not be read, because the source
  /// knows them (a hole); returns how many bytes, 0 when data follows or it cannot tell. What
  /// cannot tell may always be read as zeros: the image is the same.
  virtual Result<uint64_t> skip_hole() { return 0; }
};

/// The files of a source whose bytes can be read later than their entries were added. One object
/// serves the whole source, so that an entry that waits costs only its key. Thread-safe.
class DeferredContent {
 public:
  virtual ~DeferredContent() = default;
  /// Opens the file that `key` (Entry::deferred_key) names; called once for each file that is read.
  /// Errors name the path. A file that changed since the entry was made (size, mtime, ctime, type)
  /// is kInvalidArgument: the image would not be a state that ever was.
  virtual Result<std::unique_ptr<ContentStream>> open(std::string_view key) const = 0;
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
  /// For kRegular with size > 0: exactly one of the two is set. `stream` is used only during
  /// EntrySink::add.
  ContentStream* stream = nullptr;
  std::shared_ptr<const DeferredContent> deferred;
  /// What `deferred` needs to open the file: path and what must not have changed, as the source
  /// encodes them.
  std::string deferred_key;
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
