#include "chunkstore/source/byte_stream.h"

#include <archive.h>
#include <archive_entry.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>

#include "base/check.h"
#include "base/file_io.h"

namespace varve::chunkstore {
namespace {

constexpr size_t kReadBytes = 256 * 1024;

Status skip_by_reading(ByteStream& from, uint64_t count) {
  Bytes buffer(std::min<uint64_t>(count, kReadBytes));
  while (count > 0) {
    const size_t want = std::min<uint64_t>(count, buffer.size());
    VARVE_TRY(read_exact(from, MutableByteView(buffer).first(want)));
    count -= want;
  }
  return {};
}

class RangeStream final : public ByteStream {
 public:
  RangeStream(std::shared_ptr<const UniqueFd> file, uint64_t offset, uint64_t size)
      : file_(std::move(file)), offset_(offset), left_(size) {}

  Result<size_t> read(MutableByteView to) override {
    const size_t want = std::min<uint64_t>(left_, to.size());
    if (want == 0) return size_t{0};
    VARVE_ASSIGN(const size_t got, pread_some(file_->get(), offset_, to.first(want)));
    if (got < want) return fail(ErrorCode::kInvalidArgument, "the file shrank while being read");
    offset_ += got;
    left_ -= got;
    return got;
  }

  Status skip(uint64_t count) override {
    if (count > left_) return fail(ErrorCode::kInvalidArgument, "ends too early");
    offset_ += count;
    left_ -= count;
    return {};
  }

 private:
  std::shared_ptr<const UniqueFd> file_;
  uint64_t offset_;
  uint64_t left_;
};

class DescriptorStream final : public ByteStream {
 public:
  explicit DescriptorStream(UniqueFd fd) : fd_(std::move(fd)) {}

  Result<size_t> read(MutableByteView to) override {
    for (;;) {
      const ssize_t got = ::read(fd_.get(), to.data(), to.size());
      if (got >= 0) return static_cast<size_t>(got);
      if (errno != EINTR) return fail_errno("reading");
    }
  }

  Status skip(uint64_t count) override { return skip_by_reading(*this, count); }

 private:
  UniqueFd fd_;
};

struct ArchiveDeleter {
  void operator()(archive* handle) const { archive_read_free(handle); }
};
using ArchiveHandle = std::unique_ptr<archive, ArchiveDeleter>;

/// What was read of a stream to see what it is, and then the rest.
class HeadStream final : public ByteStream {
 public:
  HeadStream(Bytes head, std::unique_ptr<ByteStream> rest)
      : head_(std::move(head)), rest_(std::move(rest)) {}

  Result<size_t> read(MutableByteView to) override {
    if (used_ == head_.size()) return rest_->read(to);
    const size_t count = std::min(head_.size() - used_, to.size());
    copy_bytes(ByteView(head_).subspan(used_, count), to.data());
    used_ += count;
    return count;
  }

  Status skip(uint64_t count) override { return skip_by_reading(*this, count); }

 private:
  const Bytes head_;
  size_t used_ = 0;
  const std::unique_ptr<ByteStream> rest_;
};

tl::unexpected<Error> damaged_stream(const char* why) {
  return fail(ErrorCode::kInvalidArgument,
              std::string("damaged or truncated compressed data: ") + (why ? why : "unknown"));
}

constexpr uint8_t kGzipMagic[] = {0x1f, 0x8b, 8};  // and the only method there is

/// gzip, by zlib: libarchive's filter does not look at the checksum. What follows the last member
/// and is none itself is ignored, as by gzip(1).
class GunzipStream final : public ByteStream {
 public:
  explicit GunzipStream(std::unique_ptr<ByteStream> from)
      : from_(std::move(from)), buffer_(kReadBytes) {}
  ~GunzipStream() override {
    if (is_open_) inflateEnd(&zlib_);
  }

  Status open() {
    constexpr int kGzipOnly = 16;  // inflateInit2()
    if (inflateInit2(&zlib_, MAX_WBITS + kGzipOnly) != Z_OK)
      return fail(ErrorCode::kInternal, "zlib gives no decompressor");
    is_open_ = true;
    return {};
  }

  Result<size_t> read(MutableByteView to) override {
    zlib_.next_out = to.data();
    zlib_.avail_out = static_cast<uInt>(std::min<size_t>(to.size(), kReadBytes));
    const uInt wanted = zlib_.avail_out;
    while (!at_end_ && zlib_.avail_out == wanted) {
      if (zlib_.avail_in == 0) VARVE_TRY(fill(0));
      const int code = inflate(&zlib_, Z_NO_FLUSH);
      if (code == Z_STREAM_END) {
        VARVE_TRY(next_member());
      } else if (code != Z_OK) {
        const bool is_cut = code == Z_BUF_ERROR && zlib_.avail_in == 0;
        return damaged_stream(is_cut ? "truncated gzip input" : zlib_.msg);
      }
    }
    return wanted - zlib_.avail_out;
  }

  Status skip(uint64_t count) override { return skip_by_reading(*this, count); }

 private:
  /// Reads more input behind the last `kept` bytes of it.
  Status fill(size_t kept) {
    std::copy_n(zlib_.next_in, kept, buffer_.data());
    VARVE_ASSIGN(const size_t got, from_->read(MutableByteView(buffer_).subspan(kept)));
    zlib_.next_in = buffer_.data();
    zlib_.avail_in = static_cast<uInt>(kept + got);
    return {};
  }

  Status next_member() {
    while (zlib_.avail_in < sizeof(kGzipMagic)) {
      const uInt kept = zlib_.avail_in;
      VARVE_TRY(fill(kept));
      if (zlib_.avail_in == kept) break;
    }
    at_end_ = zlib_.avail_in < sizeof(kGzipMagic) ||
              !std::equal(std::begin(kGzipMagic), std::end(kGzipMagic), zlib_.next_in);
    if (!at_end_) inflateReset(&zlib_);
    return {};
  }

  const std::unique_ptr<ByteStream> from_;
  Bytes buffer_;
  z_stream zlib_ = {};
  bool is_open_ = false;
  bool at_end_ = false;
};

/// One "file" of libarchive's raw format: the stream with every filter undone.
class FilterStream final : public ByteStream {
 public:
  explicit FilterStream(std::unique_ptr<ByteStream> from)
      : from_(std::move(from)), buffer_(kReadBytes) {}

  Status open() {
    archive_.reset(archive_read_new());
    if (!archive_) return fail(ErrorCode::kInternal, "libarchive gives no reader");
    archive* const handle = archive_.get();
    // Missing support is not an error here: such input fails later, as an unknown format.
    archive_read_support_filter_bzip2(handle);
    archive_read_support_filter_xz(handle);
    archive_read_support_filter_lzma(handle);
    archive_read_support_filter_zstd(handle);
    archive_read_support_format_raw(handle);
    archive_read_support_format_empty(handle);
    archive_entry* entry = nullptr;
    if (archive_read_open(handle, this, nullptr, &FilterStream::pull, nullptr) != ARCHIVE_OK) {
      return failure();
    }
    const int code = archive_read_next_header(handle, &entry);
    if (code == ARCHIVE_EOF) {
      at_end_ = true;
      return {};
    }
    return code == ARCHIVE_OK ? Status{} : failure();
  }

  Result<size_t> read(MutableByteView to) override {
    VARVE_TRY(fill());
    const size_t count = std::min(block_.size(), to.size());
    if (count > 0) std::memcpy(to.data(), block_.data(), count);
    block_ = block_.subspan(count);
    return count;
  }

  Status skip(uint64_t count) override {
    while (count > 0) {
      VARVE_TRY(fill());
      if (block_.empty()) return fail(ErrorCode::kInvalidArgument, "ends too early");
      const size_t step = std::min<uint64_t>(count, block_.size());
      block_ = block_.subspan(step);
      count -= step;
    }
    return {};
  }

 private:
  /// Makes `block_` hold something, unless the stream is at its end.
  Status fill() {
    while (block_.empty() && !at_end_) {
      const void* data = nullptr;
      size_t size = 0;
      la_int64_t offset = 0;
      const int code = archive_read_data_block(archive_.get(), &data, &size, &offset);
      if (code == ARCHIVE_EOF) {
        at_end_ = true;
      } else if (code != ARCHIVE_OK) {
        return failure();
      } else {
        block_ = ByteView(static_cast<const uint8_t*>(data), size);
      }
    }
    return {};
  }

  static la_ssize_t pull(archive* handle, void* self_pointer, const void** data) {
    auto* const self = static_cast<FilterStream*>(self_pointer);
    *data = self->buffer_.data();
    auto got = self->from_->read(self->buffer_);
    if (got) return static_cast<la_ssize_t>(*got);
    archive_set_error(handle, EIO, "read failed");
    self->input_error_ = std::move(got).error();
    return ARCHIVE_FATAL;
  }

  tl::unexpected<Error> failure() {
    if (input_error_) return tl::unexpected<Error>(*input_error_);
    return damaged_stream(archive_error_string(archive_.get()));
  }

  std::unique_ptr<ByteStream> from_;
  Bytes buffer_;
  std::optional<Error> input_error_;
  bool at_end_ = false;
  ByteView block_;
  ArchiveHandle archive_;  // last: it may call pull() until it is gone
};

}  // namespace

Status read_exact(ByteStream& from, MutableByteView to) {
  while (!to.empty()) {
    VARVE_ASSIGN(const size_t got, from.read(to));
    if (got == 0) {
      return fail(ErrorCode::kInvalidArgument,
                  "ends " + std::to_string(to.size()) + " bytes or more too early");
    }
    to = to.subspan(got);
  }
  return {};
}

std::unique_ptr<ByteStream> open_range(std::shared_ptr<const UniqueFd> file, uint64_t offset,
                                       uint64_t size) {
  return std::make_unique<RangeStream>(std::move(file), offset, size);
}

std::unique_ptr<ByteStream> open_descriptor(UniqueFd fd) {
  return std::make_unique<DescriptorStream>(std::move(fd));
}

Result<std::unique_ptr<ByteStream>> decompress(std::unique_ptr<ByteStream> from) {
  Bytes head(sizeof(kGzipMagic));
  for (size_t filled = 0; filled < head.size();) {
    VARVE_ASSIGN(const size_t got, from->read(MutableByteView(head).subspan(filled)));
    if (got == 0) head.resize(filled);
    filled += got;
  }
  const bool is_gzip = std::ranges::equal(head, kGzipMagic);
  from = std::make_unique<HeadStream>(std::move(head), std::move(from));
  if (is_gzip) {
    auto stream = std::make_unique<GunzipStream>(std::move(from));
    VARVE_TRY(stream->open());
    return std::unique_ptr<ByteStream>(std::move(stream));
  }
  auto stream = std::make_unique<FilterStream>(std::move(from));
  VARVE_TRY(stream->open());
  return std::unique_ptr<ByteStream>(std::move(stream));
}

}  // namespace varve::chunkstore
