#include "chunkstore/source/tar_reader.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <limits>

namespace varve::chunkstore::tar {
namespace {

constexpr uint64_t kSizeMax = std::numeric_limits<int64_t>::max();

tl::unexpected<Error> invalid(std::string message) {
  return fail(ErrorCode::kInvalidArgument, std::move(message));
}

uint64_t padding_of(uint64_t size) {
  return (kBlockBytes - size % kBlockBytes) % kBlockBytes;
}

Result<uint64_t> natural(const Block& block, Field field, const char* what) {
  auto value = number_field(block, field);
  if (!value) return fail(std::move(value).error(), what);
  if (*value < 0) return invalid(std::string(what) + " is negative");
  return static_cast<uint64_t>(*value);
}

/// Long-name records end in a NUL that is not part of the name.
std::string without_trailing_nul(std::string text) {
  text.resize(std::min(text.find('\0'), text.size()));
  return text;
}

/// Types whose header may hold a size although no bytes follow (hard links of old writers,
/// directories of V7).
bool is_header_only(char type) {
  return type >= '1' && type <= '6';
}

}  // namespace

Status Reader::take(MutableByteView to) {
  VARVE_TRY(read_exact(from_, to));
  offset_ += to.size();
  return {};
}

Status Reader::skip(uint64_t count) {
  VARVE_TRY(from_.skip(count));
  offset_ += count;
  return {};
}

Status Reader::finish_member() {
  VARVE_TRY(skip(stored_left_));
  stored_left_ = 0;
  VARVE_TRY(skip(padding_));
  padding_ = 0;
  return {};
}

/// Reads what follows the first block of zeros: a second one, and what does not count.
Status Reader::read_end() {
  Block second;
  for (size_t filled = 0; filled < second.size();) {
    VARVE_ASSIGN(const size_t got, from_.read(MutableByteView(second).subspan(filled)));
    if (got == 0) return {};
    filled += got;
  }
  if (!is_zero_block(second))
    return invalid("one block of zeros with more behind it: the archive is damaged");
  Bytes buffer(64 * 1024);
  for (;;) {
    VARVE_ASSIGN(const size_t got, from_.read(buffer));
    if (got == 0) return {};
  }
}

Result<bool> Reader::read_header(Block& block) {
  const uint64_t at = offset_;
  const auto fail_here = [&](Error error) {
    return fail(std::move(error), "archive offset " + std::to_string(at));
  };
  if (auto status = take(block); !status) {
    return fail_here(
        std::move(status).error().with_context("the archive is truncated: it has no end mark"));
  }
  if (is_zero_block(block)) {
    if (auto status = read_end(); !status) return fail_here(std::move(status).error());
    return false;
  }
  if (!is_checksum_right(block)) {
    return fail_here(Error(ErrorCode::kInvalidArgument,
                           at == 0 ? "not a tar archive (or compressed in an unknown way)"
                                   : "header checksum is wrong: the archive is damaged"));
  }
  return true;
}

Result<std::string> Reader::read_record_body(const Block& block, uint64_t bytes_before) {
  VARVE_ASSIGN(const uint64_t size, natural(block, kSize, "size"));
  if (size > kRecordBytesMax) {
    return invalid("extension record of " + std::to_string(size) + " bytes is too large");
  }
  if (size > kRecordBytesMax - bytes_before) {
    return invalid("extension records of one member are too large together");
  }
  std::string body(size, '\0');
  VARVE_TRY(take({reinterpret_cast<uint8_t*>(body.data()), body.size()}));
  VARVE_TRY(skip(padding_of(size)));
  return body;
}

Result<bool> Reader::read_extensions(Block& block, PaxFields& fields) {
  std::optional<std::string> gnu_name;
  std::optional<std::string> gnu_link;
  PaxFields own = global_;
  uint64_t own_record_bytes = 0;
  for (;;) {
    VARVE_ASSIGN(const bool has_header, read_header(block));
    const char type = static_cast<char>(block[kTypeOffset]);
    if (!has_header) {
      if (gnu_name || gnu_link) return invalid("the archive ends after a long-name record");
      return false;
    }
    if (type != 'x' && type != 'g' && type != 'L' && type != 'K' && type != 'V') break;
    VARVE_ASSIGN(std::string body,
                 read_record_body(block, global_record_bytes_ + own_record_bytes));
    (type == 'g' ? global_record_bytes_ : own_record_bytes) += body.size();
    if (type == 'x') VARVE_TRY(apply_pax_records(body, own));
    if (type == 'L') gnu_name = without_trailing_nul(std::move(body));
    if (type == 'K') gnu_link = without_trailing_nul(std::move(body));
    if (type == 'g') {
      VARVE_TRY(apply_pax_records(body, global_));
      VARVE_TRY(apply_pax_records(body, own));
    }
  }
  if (!own.path) own.path = std::move(gnu_name);
  if (!own.link_path) own.link_path = std::move(gnu_link);
  fields = std::move(own);
  return true;
}

Status Reader::fill_attributes(const Block& block, const PaxFields& fields, Member& member) {
  VARVE_ASSIGN(const uint64_t mode, natural(block, kMode, "mode"));
  member.mode = static_cast<uint16_t>(mode & 07777);
  if (fields.uid) {
    member.uid = *fields.uid;
  } else {
    VARVE_ASSIGN(member.uid, natural(block, kUid, "uid"));
  }
  if (fields.gid) {
    member.gid = *fields.gid;
  } else {
    VARVE_ASSIGN(member.gid, natural(block, kGid, "gid"));
  }
  if (fields.mtime) {
    member.mtime = *fields.mtime;
  } else {
    VARVE_ASSIGN(member.mtime.seconds, number_field(block, kMtime));
  }
  if (member.type == '3' || member.type == '4') {
    VARVE_ASSIGN(member.dev_major, natural(block, kDevMajor, "device major"));
    VARVE_ASSIGN(member.dev_minor, natural(block, kDevMinor, "device minor"));
    if (fields.dev_major) member.dev_major = *fields.dev_major;
    if (fields.dev_minor) member.dev_minor = *fields.dev_minor;
  }
  member.acl_access = fields.acl_access.value_or("");
  member.acl_default = fields.acl_default.value_or("");
  member.xattrs = fields.xattrs();
  return {};
}

Status Reader::fill_member(const Block& block, const PaxFields& fields, Member& member) {
  VARVE_TRY(fill_attributes(block, fields, member));
  uint64_t stored = 0;
  if (fields.size) {
    stored = *fields.size;
  } else {
    VARVE_ASSIGN(stored, natural(block, kSize, "size"));
  }
  if (is_header_only(member.type)) stored = 0;
  if (stored > kSizeMax - kBlockBytes) {
    return invalid("size " + std::to_string(stored) + " is too large");
  }
  stored_left_ = stored;
  padding_ = padding_of(stored);
  content_at_ = 0;
  run_index_ = 0;
  content_size_ = stored;
  runs_.assign(1, SparseRun{0, stored});
  if (member.type == '0') VARVE_TRY(open_sparse(block, fields, member));
  member.size = member.type == '0' ? content_size_ : 0;
  member.data_offset = offset_;
  member.data_size = stored_left_;
  return {};
}

Result<bool> Reader::next(Member& member) {
  if (auto status = finish_member(); !status) {
    return fail(std::move(status).error(), quoted(member.path) + ": the archive is truncated");
  }
  member = Member();
  Block block;
  PaxFields fields;
  const uint64_t start = offset_;
  auto has_member = read_extensions(block, fields);
  if (!has_member) {
    return fail(std::move(has_member).error(), "member at offset " + std::to_string(start));
  }
  if (!*has_member) return false;

  member.path = fields.sparse_name ? *fields.sparse_name
                : fields.path      ? *fields.path
                                   : header_name(block);
  member.link_path =
      fields.link_path ? *fields.link_path : std::string(text_field(block, kLinkName));
  member.type = static_cast<char>(block[kTypeOffset]);
  // '7' is a contiguous file, which POSIX lets readers treat as a regular one; 'S' is GNU's sparse
  // file; 'D' GNU's directory of an incremental dump, whose data is a list of names.
  if (member.type == '\0' || member.type == '7' || member.type == 'S') member.type = '0';
  if (block[kTypeOffset] == '\0' && member.path.ends_with('/')) member.type = '5';
  if (auto status = fill_member(block, fields, member); !status) {
    return fail(std::move(status).error(), quoted(member.path));
  }
  if (member.type == 'D') member.type = '5';
  return true;
}

}  // namespace varve::chunkstore::tar
