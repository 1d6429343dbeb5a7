#include "chunkstore/build/spool.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/file_io.h"

namespace varve::chunkstore {

Spool::Spool(size_t memory_bytes_max, std::string temp_directory)
    : memory_bytes_max_(memory_bytes_max), temp_directory_(std::move(temp_directory)) {}

Status Spool::append(ByteView bytes) {
  varve::append(memory_, bytes);
  return memory_.size() > memory_bytes_max_ ? flush() : Status();
}

Status Spool::flush() {
  if (!file_) {
    VARVE_ASSIGN(file_, open_unlinked_temp(temp_directory_));
  }
  if (Status status = pwrite_all(file_.get(), file_size_, memory_); !status)
    return fail(std::move(status).error(),
                "spilling to a temporary file in " + quoted(temp_directory_));
  file_size_ += memory_.size();
  memory_.clear();
  return {};
}

Status Spool::read(uint64_t offset, MutableByteView to) const {
  VARVE_CHECK(offset <= size() && to.size() <= size() - offset);
  if (to.empty()) return {};
  if (offset < file_size_) {
    const size_t from_file = std::min<uint64_t>(to.size(), file_size_ - offset);
    VARVE_TRY(pread_exact(file_.get(), offset, to.first(from_file)));
    to = to.subspan(from_file);
    offset += from_file;
  }
  if (!to.empty()) std::memcpy(to.data(), memory_.data() + (offset - file_size_), to.size());
  return {};
}

}  // namespace varve::chunkstore
