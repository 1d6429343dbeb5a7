#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"
#include "chunkstore/source/byte_stream.h"
#include "chunkstore/source/entry.h"
#include "chunkstore/source/tar_header.h"

namespace varve::chunkstore::tar {

/// One member as the archive states it: nothing normalised, bytes as they are. Value type.
struct Member {
  std::string path;
  char type = '0';  ///< '0' regular … '6' fifo; '7', 'V7 directory' and NUL are mapped to these.
  uint16_t mode = 0;  ///< Permission bits, 07777.
  uint64_t uid = 0;
  uint64_t gid = 0;
  Timestamp mtime;
  uint64_t dev_major = 0;
  uint64_t dev_minor = 0;
  uint64_t size = 0;  ///< Of the content, holes of sparse files included; 0 for other types.
  std::string link_path;
  std::string acl_access;   ///< Text of the record, or "".
  std::string acl_default;  ///< Text of the record, or "".
  std::map<std::string, std::string> xattrs;
  uint64_t data_offset = 0;  ///< Archive offset of the stored bytes.
  uint64_t data_size = 0;    ///< Stored bytes; differs from `size` when the member is sparse.
};

/// Reads a tar archive member by member: V7, ustar, pax (incl. global records), GNU and star names,
/// the three pax forms and the old GNU form of sparse files.
///
/// Headers are decoded here and not by libarchive because that rewrites names (decomposed Unicode
/// is recomposed, so that two names can become one), refuses names in other charsets, leaves xattr
/// names encoded and accepts an archive that ends before its end mark.
/// Loop-local. Trusts nothing; memory is bounded by kRecordBytesMax and kSparseRunCountMax.
class Reader {
 public:
  /// `from` (uncompressed) must outlive the reader.
  explicit Reader(ByteStream& from) : from_(from) {}

  /// Moves to the next member, skipping what is unread of the last; false at the end mark, and then
  /// everything behind it has been read too, so that a damaged compressed stream is noticed.
  /// Errors name the member, or the archive offset before its name is known.
  Result<bool> next(Member& member);

  /// Content of the member that next() returned last, holes as zeros.
  ContentStream& content() { return content_; }

 private:
  class Content final : public ContentStream {
   public:
    explicit Content(Reader& reader) : reader_(reader) {}
    Result<size_t> read(MutableByteView to) override { return reader_.read_content(to); }
    Result<uint64_t> skip_hole() override { return reader_.skip_hole(); }

   private:
    Reader& reader_;
  };

  Result<bool> read_header(Block& block);
  /// @param bytes_before  Of the records that the member has already.
  Result<std::string> read_record_body(const Block& block, uint64_t bytes_before);
  /// Consumes `x`, `g`, `L`, `K` and `V` members in front of the real one; false at the end.
  Result<bool> read_extensions(Block& block, PaxFields& fields);
  Status fill_member(const Block& block, const PaxFields& fields, Member& member);
  Status fill_attributes(const Block& block, const PaxFields& fields, Member& member);
  Status open_sparse(const Block& block, const PaxFields& fields, Member& member);
  Status read_gnu_runs(const Block& block);
  Status read_sparse_1_0_map();
  Status check_runs(const Member& member) const;
  Status finish_member();
  Status read_end();
  uint64_t hole_bytes();
  uint64_t skip_hole();
  Result<size_t> read_content(MutableByteView to);
  Status take(MutableByteView to);
  Status skip(uint64_t count);
  Result<std::string> read_map_number(Block& block, size_t& at);

  ByteStream& from_;
  Content content_{*this};
  uint64_t offset_ = 0;       // of the archive, consumed so far
  uint64_t stored_left_ = 0;  // bytes of the current member not read yet
  uint64_t padding_ = 0;      // behind them
  uint64_t content_at_ = 0;   // position in the content
  uint64_t content_size_ = 0;
  std::vector<SparseRun> runs_;  // ascending; one run for a plain file
  size_t run_index_ = 0;
  PaxFields global_;
  uint64_t global_record_bytes_ = 0;
};

/// Bytes of the pax, long-name and long-link records in front of a member, with all global ones
/// before.
inline constexpr uint64_t kRecordBytesMax = 16 << 20;

}  // namespace varve::chunkstore::tar
