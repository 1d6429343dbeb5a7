#include "chunkstore/format/chunk.h"

#include <fmt/format.h>
#include <zstd.h>
#include <zstd_errors.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/check.h"

namespace varve::chunkstore {

namespace {

/// How matches are looked for; 0 = as level 3 does.
struct Matching {
  int strategy;
  int hash_log;
  int chain_log;
  int match_bytes_min;
};

// The default. In text, tables and bytecode, which have few distinct byte values, a second
// hash table and short matches pay; in machine code and what is packed already they cost half as
// much time again for 2 %. Over a Debian system this takes 18 % less time than level 3 and 0.8 %
// more space. Small tables leave the CPU's cache to the other threads.
constexpr Matching kMatchingOfFewValues = {ZSTD_dfast, 17, 16, 4};
constexpr Matching kMatchingOfManyValues = {ZSTD_fast, 14, 0, 4};
constexpr size_t kManyValues = 160;
// The values are counted in this many pieces, evenly spread.
constexpr size_t kSamplePieces = 16;
constexpr size_t kSamplePieceBytes = 64;

/// Whether a sample of `bytes` has at least kManyValues distinct byte values.
bool has_many_values(ByteView bytes) {
  std::array<uint8_t, 256> is_found = {};
  for (size_t i = 0; i < kSamplePieces; ++i) {
    const ByteView from = bytes.subspan(bytes.size() * i / kSamplePieces);
    for (const uint8_t value : from.first(std::min(from.size(), kSamplePieceBytes)))
      is_found[value] = 1;
  }
  return static_cast<size_t>(std::ranges::count(is_found, 1)) >= kManyValues;
}

}  // namespace

struct ChunkEncoder::State {
  explicit State(int level)
      : is_default(level == kCompressionLevelDefault),
        context(ZSTD_createCCtx()),
        scratch(kChunkBytesMax) {
    VARVE_CHECK(context != nullptr);
    VARVE_CHECK(is_default || (level >= kCompressionLevelMin && level <= kCompressionLevelMax));
    set(ZSTD_c_compressionLevel, is_default ? 3 : level);
    // The chunk's SHA-256 is checked anyway.
    set(ZSTD_c_checksumFlag, 0);
  }
  ~State() { ZSTD_freeCCtx(context); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  void set(ZSTD_cParameter parameter, int value) {
    VARVE_CHECK(!ZSTD_isError(ZSTD_CCtx_setParameter(context, parameter, value)));
  }
  void set(const Matching& matching) {
    set(ZSTD_c_strategy, matching.strategy);
    set(ZSTD_c_hashLog, matching.hash_log);
    set(ZSTD_c_chainLog, matching.chain_log);
    set(ZSTD_c_minMatch, matching.match_bytes_min);
  }

  bool is_default;
  ZSTD_CCtx* context;
  Bytes scratch;
};

ChunkEncoder::ChunkEncoder(int level) : state_(std::make_unique<State>(level)) {}
ChunkEncoder::~ChunkEncoder() = default;
ChunkEncoder::ChunkEncoder(ChunkEncoder&&) noexcept = default;
ChunkEncoder& ChunkEncoder::operator=(ChunkEncoder&&) noexcept = default;

StoredChunk ChunkEncoder::encode(Bytes raw) {
  VARVE_CHECK_OP(raw.size(), >=, 1u);
  VARVE_CHECK_OP(raw.size(), <=, kChunkBytesMax);
  if (state_->is_default)
    state_->set(has_many_values(raw) ? kMatchingOfManyValues : kMatchingOfFewValues);
  // One byte less than the input as room: a frame that does not fit is not smaller.
  const size_t size = ZSTD_compress2(state_->context, state_->scratch.data(), raw.size() - 1,
                                     raw.data(), raw.size());
  if (ZSTD_isError(size)) {
    VARVE_CHECK_OP(ZSTD_getErrorCode(size), ==, ZSTD_error_dstSize_tooSmall);
    return {std::move(raw), true};
  }
  return {Bytes(state_->scratch.begin(), state_->scratch.begin() + static_cast<ptrdiff_t>(size)),
          false};
}

namespace {

Status compare(const Digest& found, const Digest& id) {
  if (found == id) return {};
  return fail(ErrorCode::kCorruption, "content has the hash " + found.hex());
}

}  // namespace

struct ChunkDecoder::State {
  State() : context(ZSTD_createDCtx()) { VARVE_CHECK(context != nullptr); }
  ~State() { ZSTD_freeDCtx(context); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  ZSTD_DCtx* context;
};

ChunkDecoder::ChunkDecoder() : state_(std::make_unique<State>()) {}
ChunkDecoder::~ChunkDecoder() = default;
ChunkDecoder::ChunkDecoder(ChunkDecoder&&) noexcept = default;
ChunkDecoder& ChunkDecoder::operator=(ChunkDecoder&&) noexcept = default;

Status ChunkDecoder::decompress(const ChunkToDecode& chunk) {
  const auto& [stored, is_raw, id, raw] = chunk;
  if (is_raw) {
    if (stored.size() != raw.size()) {
      return fail(ErrorCode::kCorruption,
                  fmt::format("raw chunk has {} bytes instead of {}", stored.size(), raw.size()));
    }
    copy_bytes(stored, raw.data());
    return {};
  }
  const size_t size =
      ZSTD_decompressDCtx(state_->context, raw.data(), raw.size(), stored.data(), stored.size());
  if (ZSTD_isError(size)) {
    return fail(ErrorCode::kCorruption,
                fmt::format("cannot decompress: {}", ZSTD_getErrorName(size)));
  }
  if (size != raw.size()) {
    return fail(ErrorCode::kCorruption,
                fmt::format("decompresses to {} bytes instead of {}", size, raw.size()));
  }
  return {};
}

Status ChunkDecoder::decode(ByteView stored, bool is_raw, const Digest& id, MutableByteView raw) {
  VARVE_TRY(decompress({stored, is_raw, id, raw}));
  return compare(sha256(raw), id);
}

std::vector<Status> ChunkDecoder::decode_all(std::span<const ChunkToDecode> chunks) {
  std::vector<Status> results(chunks.size());
  std::vector<ByteView> raws(chunks.size());  // Empty where there is nothing to hash.
  for (size_t i = 0; i < chunks.size(); ++i) {
    results[i] = decompress(chunks[i]);
    if (results[i]) raws[i] = chunks[i].raw;
  }
  std::vector<Digest> found(chunks.size());
  sha256_all(raws, found);
  for (size_t i = 0; i < chunks.size(); ++i) {
    if (results[i]) results[i] = compare(found[i], chunks[i].id);
  }
  return results;
}

}  // namespace varve::chunkstore
