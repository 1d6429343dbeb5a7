#include "chunkstore/source/deferred_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/check.h"
#include "base/file_io.h"
#include "chunkstore/source/archive_path.h"
#include "chunkstore/source/beneath.h"

namespace varve::chunkstore {
namespace {

/// What must be the same from listing a file to the end of reading it.
struct Fingerprint {
  uint64_t ino;
  uint64_t size;
  int64_t mtime_s;
  int64_t ctime_s;
  uint32_t mtime_ns;
  uint32_t ctime_ns;

  bool operator==(const Fingerprint&) const = default;
};
static_assert(sizeof(Fingerprint) == 40, "the key must not hold padding");

Fingerprint fingerprint_of(const struct statx& status) {
  return {status.stx_ino,          status.stx_size,          status.stx_mtime.tv_sec,
          status.stx_ctime.tv_sec, status.stx_mtime.tv_nsec, status.stx_ctime.tv_nsec};
}

class FileStream final : public ContentStream {
 public:
  FileStream(UniqueFd fd, std::string name, const Fingerprint& expected)
      : fd_(std::move(fd)), name_(std::move(name)), expected_(expected) {}

  /// kInvalidArgument when the file is not what was listed.
  Status check_unchanged() {
    struct statx status;
    if (::statx(fd_.get(), "", AT_EMPTY_PATH, STATX_BASIC_STATS, &status) != 0) {
      return fail_errno("inspecting " + quoted(name_));
    }
    if (!S_ISREG(status.stx_mode) || fingerprint_of(status) != expected_) {
      return fail(ErrorCode::kInvalidArgument,
                  quoted(name_) + " changed while it was being packed");
    }
    has_holes_ = status.stx_blocks * 512 < status.stx_size;
    return {};
  }

  Result<size_t> read(MutableByteView to) override {
    const size_t want = std::min<uint64_t>(to.size(), expected_.size - position_);
    auto got = pread_some(fd_.get(), position_, to.first(want));
    if (!got) return fail(std::move(got).error(), quoted(name_));
    if (*got < want) {
      return fail(ErrorCode::kInvalidArgument, quoted(name_) + " shrank while it was being packed");
    }
    VARVE_TRY(advance(*got));
    return *got;
  }

  Result<uint64_t> skip_hole() override {
    if (!has_holes_ || position_ == expected_.size) return uint64_t{0};
    uint64_t data_at = expected_.size;
    const off_t found = ::lseek(fd_.get(), static_cast<off_t>(position_), SEEK_DATA);
    if (found >= 0) {
      data_at = std::min<uint64_t>(static_cast<uint64_t>(found), expected_.size);
    } else if (errno != ENXIO) {  // ENXIO: nothing but a hole up to the end
      return fail_errno(quoted(name_) + ": looking for holes");
    }
    const uint64_t count = data_at - position_;
    VARVE_TRY(advance(count));
    return count;
  }

 private:
  Status advance(uint64_t count) {
    position_ += count;
    if (position_ == expected_.size && count > 0) return check_unchanged();
    return {};
  }

  UniqueFd fd_;
  const std::string name_;
  const Fingerprint expected_;
  uint64_t position_ = 0;
  bool has_holes_ = false;
};

}  // namespace

std::string deferred_file_key(std::string_view path, const struct statx& status) {
  const Fingerprint fingerprint = fingerprint_of(status);
  std::string key(reinterpret_cast<const char*>(&fingerprint), sizeof(fingerprint));
  return key.append(path);
}

Result<std::unique_ptr<ContentStream>> DirectoryContent::open(std::string_view key) const {
  VARVE_CHECK_OP(key.size(), >=, sizeof(Fingerprint));
  Fingerprint expected;
  std::memcpy(&expected, key.data(), sizeof(expected));
  const std::string_view path = key.substr(sizeof(expected));
  std::string name = join_path(name_, path);
  // O_NONBLOCK: a FIFO that took the file's place must not hold the builder up.
  auto fd = open_beneath(root_->get(), path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
  if (!fd) return fail(std::move(fd).error(), "opening " + quoted(name));
  auto stream = std::make_unique<FileStream>(std::move(*fd), std::move(name), expected);
  VARVE_TRY(stream->check_unchanged());
  return std::unique_ptr<ContentStream>(std::move(stream));
}

}  // namespace varve::chunkstore
