#pragma once

#include <map>
#include <vector>

#include "base/check.h"
#include "chunkstore/build/chunk_sink.h"
#include "chunkstore/build/layer_builder.h"

namespace varve::chunkstore {

/// Keeps the chunks in memory; ids are only known after drain(), as the contract says.
class MemorySink final : public ChunkSink {
 public:
  Result<uint64_t> submit(Bytes raw) override {
    VARVE_CHECK(!raw.empty() && raw.size() <= kChunkBytesMax);
    if (fail_at_ != 0 && ids_.size() + 1 == fail_at_)
      return fail(ErrorCode::kNoSpace, "the store is full");
    const Digest id = sha256(raw);
    submitted_bytes_ += raw.size();
    chunks_.emplace(id, std::move(raw));
    ids_.push_back(id);
    return ids_.size() - 1;
  }
  Status drain() override {
    drained_count_ = ids_.size();
    return {};
  }
  Digest id(uint64_t ordinal) const override {
    VARVE_CHECK_OP(ordinal, <, drained_count_);
    return ids_[ordinal];
  }

  /// The `count`-th submit fails.
  void fail_at(size_t count) { fail_at_ = count; }
  uint64_t submitted_bytes() const { return submitted_bytes_; }
  const Bytes& chunk(const Digest& id) const { return chunks_.at(id); }

  /// The bytes of a layer's image.
  Bytes image(const BuiltLayer& layer) const {
    Bytes bytes;
    bytes.reserve(layer.image_size);
    for (const LayerChunk& chunk : layer.chunks) {
      VARVE_CHECK_OP(chunks_.at(chunk.id).size(), ==, chunk.raw_size);
      append(bytes, chunks_.at(chunk.id));
    }
    VARVE_CHECK_OP(bytes.size(), ==, layer.image_size);
    return bytes;
  }

 private:
  std::map<Digest, Bytes> chunks_;
  std::vector<Digest> ids_;
  size_t drained_count_ = 0;
  size_t fail_at_ = 0;
  uint64_t submitted_bytes_ = 0;
};

}  // namespace varve::chunkstore
