// The tar source: headers, pax records, sparse maps, ACL texts, whiteout names. Header checksums are
// put right first, or nothing else would be reached.
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "chunkstore/source/archive_path.h"
#include "chunkstore/source/byte_stream.h"
#include "chunkstore/source/entry.h"
#include "chunkstore/source/posix_acl.h"
#include "chunkstore/source/tar_header.h"
#include "chunkstore/source/tar_source.h"

using namespace varve;
using namespace varve::chunkstore;

namespace {

/// Sparse files may claim any size: what is read of one is bounded.
constexpr uint64_t kContentBytesMax = 1 << 20;

class MemoryStream final : public ByteStream {
 public:
  explicit MemoryStream(ByteView bytes) : bytes_(bytes) {}
  Result<size_t> read(MutableByteView to) override {
    const size_t count = std::min(to.size(), bytes_.size());
    std::copy_n(bytes_.begin(), count, to.begin());
    bytes_ = bytes_.subspan(count);
    return count;
  }
  Status skip(uint64_t count) override {
    if (count > bytes_.size()) return fail(ErrorCode::kInvalidArgument, "ends too early");
    bytes_ = bytes_.subspan(count);
    return {};
  }

 private:
  ByteView bytes_;
};

/// What every entry of a source promises (entry.h).
class CheckingSink final : public EntrySink {
 public:
  Status add(Entry entry) override {
    const auto path = normalise_archive_path(entry.path);
    if (!path || *path != entry.path) __builtin_trap();
    if (entry.mtime_ns >= 1'000'000'000 || entry.mode > 07777) __builtin_trap();
    if ((entry.stream != nullptr) != (entry.type == EntryType::kRegular && entry.size > 0)) {
      __builtin_trap();
    }
    if (entry.stream == nullptr) return {};
    Bytes buffer(16 * 1024);
    uint64_t left = std::min(entry.size, kContentBytesMax);
    while (left > 0) {
      VARVE_ASSIGN(const size_t got, entry.stream->read(buffer));
      if (got == 0 || got > buffer.size()) __builtin_trap();
      left -= std::min<uint64_t>(left, got);
    }
    return {};
  }
};

Bytes with_right_checksums(ByteView data) {
  Bytes bytes(data.begin(), data.end());
  for (size_t at = 0; at + tar::kBlockBytes <= bytes.size(); at += tar::kBlockBytes) {
    uint8_t* const block = bytes.data() + at;
    if (std::memcmp(block + tar::kMagic.offset, "ustar", 5) != 0) continue;
    std::memset(block + tar::kChecksum.offset, ' ', tar::kChecksum.size);
    unsigned sum = 0;
    for (size_t i = 0; i < tar::kBlockBytes; ++i) sum += block[i];
    std::snprintf(reinterpret_cast<char*>(block + tar::kChecksum.offset), 7, "%06o", sum);
  }
  return bytes;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const Bytes bytes = with_right_checksums(ByteView(data, size));
  for (const TarMode mode : {TarMode::kPlain, TarMode::kOciLayer}) {
    CheckingSink sink;
    (void)make_tar_source(std::make_unique<MemoryStream>(bytes), "fuzz", mode)->read_into(sink);
  }
  tar::PaxFields fields;
  (void)tar::apply_pax_records(as_text(ByteView(data, size)), fields);
  if (const auto acl = parse_acl_text(as_text(ByteView(data, size)))) {
    const auto text = format_acl_text(acl->xattr);
    if (!text || parse_acl_text(*text)->xattr != acl->xattr) __builtin_trap();
  }
  return 0;
}
