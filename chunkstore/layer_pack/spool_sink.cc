#include "chunkstore/layer_pack/spool_sink.h"

#include "base/file_io.h"

namespace varve::layer_pack {

Result<SpoolSink> SpoolSink::create(const std::string& temp_directory) {
  VARVE_ASSIGN(UniqueFd file, open_unlinked_temp(temp_directory));
  return SpoolSink(std::move(file), temp_directory);
}

Result<uint64_t> SpoolSink::submit(Bytes raw) {
  const Digest id = sha256(raw);
  if (chunks_.try_emplace(id, Chunk{size_, static_cast<uint32_t>(raw.size())}).second) {
    if (auto status = pwrite_all(file_.get(), size_, raw); !status) {
      return fail(std::move(status).error(),
                  "writing metadata to a temporary file in " + quoted(temp_directory_));
    }
    size_ += raw.size();
  }
  ids_.push_back(id);
  return ids_.size() - 1;
}

Result<Bytes> SpoolSink::read(const Digest& id) const {
  const auto found = chunks_.find(id);
  if (found == chunks_.end()) {
    return fail(ErrorCode::kInternal, "chunk " + id.short_hex() + " was never submitted");
  }
  Bytes raw(found->second.size);
  VARVE_TRY(pread_exact(file_.get(), found->second.offset, raw));
  return raw;
}

}  // namespace varve::layer_pack
