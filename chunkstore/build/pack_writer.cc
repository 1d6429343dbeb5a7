#include <utility>

#include "chunkstore/build/internal/pack_writer.h"

namespace varve::chunkstore {

PackWriter::PackWriter(Store& store, uint32_t pack_bytes_max, std::function<uint32_t()> begin,
                       std::function<Status(FinishedPack)> finish)
    : store_(store),
      pack_bytes_max_(pack_bytes_max),
      begin_(std::move(begin)),
      finish_(std::move(finish)) {}

Result<PackWriter::Place> PackWriter::add(const Digest& id, uint32_t raw_size,
                                          const StoredChunk& stored) {
  if (writer_ && size_with(stored.bytes.size()) > pack_bytes_max_) VARVE_TRY(flush());
  if (!writer_) {
    VARVE_ASSIGN(writer_, store_.create());
    number_ = begin_();
    stored_hash_ = Xxh3Hasher128();
  }
  const Place place{number_, size_};
  const auto stored_size = static_cast<uint32_t>(stored.bytes.size());
  stored_hash_.update(stored.bytes);
  VARVE_TRY(writer_->write(stored.bytes));
  entries_.push_back({id, size_, stored_size, raw_size, stored.is_raw});
  size_ += stored_size;
  return place;
}

Status PackWriter::flush() {
  if (!writer_) return {};
  const Bytes tail = encode_pack_tail(entries_, stored_hash_.value());
  VARVE_TRY(writer_->write(tail));
  entries_.clear();
  size_ = 0;
  return finish_({number_, pack_id(tail), std::move(writer_)});
}

}  // namespace varve::chunkstore
