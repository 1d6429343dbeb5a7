#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/error.h"
#include "base/unique_fd.h"

namespace varve {

/// open(2)/openat(2) with O_CLOEXEC added; the error names the path.
Result<UniqueFd> open_file(const std::string& path, int flags, mode_t mode = 0644);
Result<UniqueFd> open_file_at(int dir_fd, const std::string& path, int flags, mode_t mode = 0644);

/// Reads until `to` is full. kCorruption when the file ends before that; -EINTR and short reads are
/// handled here and nowhere else.
Status pread_exact(int fd, uint64_t offset, MutableByteView to);
/// Reads up to `to.size()` bytes; fewer only at the end of the file.
Result<size_t> pread_some(int fd, uint64_t offset, MutableByteView to);
Status pwrite_all(int fd, uint64_t offset, ByteView bytes);
Status write_all(int fd, ByteView bytes);

/// The whole file; kInvalidArgument when it is larger than `bytes_max`.
Result<Bytes> read_file(const std::string& path, uint64_t bytes_max);

Status fsync_fd(int fd, std::string_view what);
Status fsync_dir(const std::string& path);
/// mkdir -p.
Status make_directories(const std::string& path, mode_t mode = 0755);

/// Replaces `path` atomically and durably: temporary file beside it, fsync, rename, fsync of the
/// directory. A crash leaves the old file or the new one.
Status write_file_atomic(const std::string& path, ByteView bytes, mode_t mode = 0644);

/// A read-write file without a name in `directory` (O_TMPFILE, or created and unlinked).
Result<UniqueFd> open_unlinked_temp(const std::string& directory);

}  // namespace varve
