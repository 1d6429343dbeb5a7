#include "chunkstore/source/path_stack.h"

#include <iterator>
#include <utility>

#include "base/bytes.h"
#include "base/check.h"
#include "base/file_io.h"

namespace varve::chunkstore {
namespace {

size_t memory_bytes(const std::string& path) {
  return sizeof path + path.size() + 1;
}

}  // namespace

Status PathStack::push(std::string path) {
  upper_bytes_ += memory_bytes(path);
  upper_.push_back(std::move(path));
  return upper_bytes_ > memory_bytes_max_ && upper_.size() > 1 ? spill() : Status();
}

Result<std::string> PathStack::pop() {
  if (upper_.empty()) VARVE_TRY(load());
  std::string path = std::move(upper_.back());
  upper_.pop_back();
  upper_bytes_ -= memory_bytes(path);
  return path;
}

/// The lower half, so that neither the next push nor the next pop is one that moves paths again.
Status PathStack::spill() {
  if (!file_) {
    VARVE_ASSIGN(file_, open_unlinked_temp(temp_directory_));
  }
  const size_t count = upper_.size() / 2;
  std::string text;
  for (size_t i = 0; i < count; ++i) {
    upper_bytes_ -= memory_bytes(upper_[i]);
    text.append(upper_[i].c_str(), upper_[i].size() + 1);
  }
  Segment segment{0, text.size()};
  if (!spilled_.empty()) segment.offset = spilled_.back().offset + spilled_.back().bytes;
  VARVE_TRY(pwrite_all(file_.get(), segment.offset, as_bytes(text)));
  spilled_.push_back(segment);
  upper_.erase(upper_.begin(), upper_.begin() + static_cast<ptrdiff_t>(count));
  return {};
}

Status PathStack::load() {
  VARVE_CHECK(!spilled_.empty());
  std::string text(spilled_.back().bytes, '\0');
  VARVE_TRY(pread_exact(file_.get(), spilled_.back().offset,
                        {reinterpret_cast<uint8_t*>(text.data()), text.size()}));
  spilled_.pop_back();
  for (size_t at = 0; at < text.size();) {
    upper_.emplace_back(text.c_str() + at);
    upper_bytes_ += memory_bytes(upper_.back());
    at += upper_.back().size() + 1;
  }
  return {};
}

}  // namespace varve::chunkstore
