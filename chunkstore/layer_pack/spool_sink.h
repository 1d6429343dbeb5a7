#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "base/unique_fd.h"
#include "chunkstore/build/chunk_sink.h"

namespace varve::layer_pack {

/// Keeps chunks in a file without a name, for an image that no store is to hold. Loop-local.
class SpoolSink final : public chunkstore::ChunkSink {
 public:
  static Result<SpoolSink> create(const std::string& temp_directory);

  Result<uint64_t> submit(Bytes raw) override;
  Status drain() override { return {}; }
  Digest id(uint64_t ordinal) const override { return ids_[ordinal]; }

  /// The bytes of a chunk that was submitted.
  Result<Bytes> read(const Digest& id) const;

 private:
  struct Chunk {
    uint64_t offset = 0;
    uint32_t size = 0;
  };
  SpoolSink(UniqueFd file, std::string temp_directory)
      : file_(std::move(file)), temp_directory_(std::move(temp_directory)) {}

  UniqueFd file_;
  std::string temp_directory_;  // for messages
  std::vector<Digest> ids_;     // by ordinal
  std::unordered_map<Digest, Chunk, DigestHash> chunks_;
  uint64_t size_ = 0;
};

}  // namespace varve::layer_pack
