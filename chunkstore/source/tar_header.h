#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"

/// The records of a tar archive, decoded one by one; tar_reader.h puts them together.
/// Source: pax(1) in POSIX.1-2017 (ustar and pax interchange formats), the GNU tar manual, "Basic
/// Tar Format" and "Storing Sparse Files".
namespace varve::chunkstore::tar {

inline constexpr size_t kBlockBytes = 512;
using Block = std::array<uint8_t, kBlockBytes>;

struct Field {
  size_t offset;
  size_t size;
};
inline constexpr Field kName{0, 100};
inline constexpr Field kMode{100, 8};
inline constexpr Field kUid{108, 8};
inline constexpr Field kGid{116, 8};
inline constexpr Field kSize{124, 12};
inline constexpr Field kMtime{136, 12};
inline constexpr Field kChecksum{148, 8};
inline constexpr size_t kTypeOffset = 156;
inline constexpr Field kLinkName{157, 100};
inline constexpr Field kMagic{257, 8};
inline constexpr Field kDevMajor{329, 8};
inline constexpr Field kDevMinor{337, 8};
inline constexpr Field kPrefix{345, 155};
/// star's own format keeps times behind a shorter prefix and says so with "tar\0" at the end.
inline constexpr Field kStarPrefix{345, 131};
inline constexpr size_t kStarMarkOffset = 508;

bool is_zero_block(const Block& block);
/// The stored checksum is that of the block, summed as unsigned or (old writers) signed bytes.
bool is_checksum_right(const Block& block);
/// The text of `field`, up to its first NUL.
std::string_view text_field(const Block& block, Field field);
/// A number in octal, or in GNU's base-256 form (signed). Blank is 0. kInvalidArgument otherwise,
/// and when it does not fit.
Result<int64_t> number_field(const Block& block, Field field);
/// The name in the header itself, prefix included.
std::string header_name(const Block& block);

struct Timestamp {
  int64_t seconds = 0;
  uint32_t nanoseconds = 0;  ///< Counts up from `seconds`, also before 1970.
};
/// A pax time: decimal, optional sign and fraction; digits past nanoseconds round down.
Result<Timestamp> parse_time(std::string_view text);

/// Bytes [offset, offset + size) of a sparse file are in the archive; what no run covers is zero.
struct SparseRun {
  uint64_t offset = 0;
  uint64_t size = 0;
};
/// More runs than this are refused: their list has to fit into memory.
inline constexpr size_t kSparseRunCountMax = 1 << 20;

/// What pax records say about a member. Empty optionals leave the header's value in force.
struct PaxFields {
  std::optional<std::string> path;
  std::optional<std::string> link_path;
  std::optional<uint64_t> size;
  std::optional<uint64_t> uid;
  std::optional<uint64_t> gid;
  std::optional<Timestamp> mtime;
  std::optional<uint64_t> dev_major;
  std::optional<uint64_t> dev_minor;
  std::optional<std::string> acl_access;
  std::optional<std::string> acl_default;
  std::map<std::string, std::string> schily_xattrs;      ///< Names as GNU tar means them.
  std::map<std::string, std::string> libarchive_xattrs;  ///< Decoded.
  std::optional<uint64_t> sparse_real_size;
  std::optional<uint64_t> sparse_major;
  std::optional<uint64_t> sparse_minor;
  std::optional<std::string> sparse_name;
  std::vector<SparseRun> sparse_runs;
  bool has_sparse_runs = false;

  /// The xattrs that count: libarchive writes every attribute twice, and of the two its own records
  /// alone keep every name apart.
  const std::map<std::string, std::string>& xattrs() const {
    return libarchive_xattrs.empty() ? schily_xattrs : libarchive_xattrs;
  }
};

/// Applies the records in `body` (of an `x` or `g` member) to `fields`. Unknown keywords are
/// ignored as POSIX asks, except those that change what the content means (kUnsupported).
Status apply_pax_records(std::string_view body, PaxFields& fields);

}  // namespace varve::chunkstore::tar
