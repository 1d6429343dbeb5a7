#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"
#include "base/hash.h"
#include "chunkstore/format/layer.h"

/// How one chunk is stored: a zstd frame (RFC 8878, no dictionary), or its raw bytes where the
/// frame would not be smaller. Defined by varve-store(5), section CHUNKS.
namespace varve::chunkstore {

/// No zstd level, but parameters of ours that depend on the chunk's content, between those of
/// levels 1 and 3.
inline constexpr int kCompressionLevelDefault = 0;
inline constexpr int kCompressionLevelMin = 1;
inline constexpr int kCompressionLevelMax = 19;

struct StoredChunk {
  Bytes bytes;
  bool is_raw = false;
};

/// Compresses chunks with one reused zstd context. Loop-local.
class ChunkEncoder {
 public:
  /// @param level  kCompressionLevelDefault, or a zstd level, kCompressionLevelMin …
  ///               kCompressionLevelMax.
  explicit ChunkEncoder(int level);
  ~ChunkEncoder();
  ChunkEncoder(ChunkEncoder&&) noexcept;
  ChunkEncoder& operator=(ChunkEncoder&&) noexcept;

  /// @param raw  1 … kChunkBytesMax bytes; moved into the result when it is stored raw.
  StoredChunk encode(Bytes raw);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// A chunk as it is stored, and where to decode it to.
struct ChunkToDecode {
  ByteView stored;
  bool is_raw = false;
  Digest id;
  MutableByteView raw;  ///< Of the chunk's size.
};

/// Decodes chunks with one reused zstd context. Loop-local; ~150 µs for 128 KiB.
class ChunkDecoder {
 public:
  ChunkDecoder();
  ~ChunkDecoder();
  ChunkDecoder(ChunkDecoder&&) noexcept;
  ChunkDecoder& operator=(ChunkDecoder&&) noexcept;

  /// Decodes `stored` into exactly `raw` and checks it against `id`. What the frame says about its
  /// own size is not trusted: never more than `raw.size()` bytes are written.
  /// Errors: kCorruption.
  Status decode(ByteView stored, bool is_raw, const Digest& id, MutableByteView raw);
  /// The same for several chunks, one result each, in their order. Three take a sixth less time
  /// than one after another: they are hashed together.
  std::vector<Status> decode_all(std::span<const ChunkToDecode> chunks);

 private:
  struct State;

  Status decompress(const ChunkToDecode& chunk);

  std::unique_ptr<State> state_;
};

}  // namespace varve::chunkstore
