#include "chunkstore/format/chunk.h"

#include <fmt/format.h>
#include <zstd.h>
#include <zstd_errors.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace varve::chunkstore {

namespace {

// The default: level 3, but chunks of up to kFastBytesMax are matched with one large hash table
// instead of two. Of such chunks the frames get 1.8 % larger and take 28 % less time; level 2 has
// this strategy too, with smaller tables, and is both larger and slower. Larger chunks would lose
// 3 % and more. FastCDC makes many chunks that end soon behind 128 KiB: they count as small.
constexpr int kDefaultBaseLevel = 3;
constexpr size_t kFastBytesMax = 132 << 10;
constexpr int kFastHashLog = 17;
constexpr int kFastMatchBytesMin = 5;

}  // namespace

struct ChunkEncoder::State {
  explicit State(int level)
      : is_default(level == kCompressionLevelDefault),
        context(ZSTD_createCCtx()),
        scratch(kChunkBytesMax) {
    VARVE_CHECK(context != nullptr);
    VARVE_CHECK(is_default || (level >= kCompressionLevelMin && level <= kCompressionLevelMax));
    set(ZSTD_c_compressionLevel, is_default ? kDefaultBaseLevel : level);
    // The chunk's SHA-256 is checked anyway.
    set(ZSTD_c_checksumFlag, 0);
  }
  ~State() { ZSTD_freeCCtx(context); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  void set(ZSTD_cParameter parameter, int value) {
    VARVE_CHECK(!ZSTD_isError(ZSTD_CCtx_setParameter(context, parameter, value)));
  }
  /// 0 stands for what the level has.
  void set_fast(bool fast) {
    if (fast == is_fast) return;
    is_fast = fast;
    set(ZSTD_c_strategy, fast ? ZSTD_fast : 0);
    set(ZSTD_c_hashLog, fast ? kFastHashLog : 0);
    set(ZSTD_c_minMatch, fast ? kFastMatchBytesMin : 0);
  }

  bool is_default;
  bool is_fast = false;
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
  if (state_->is_default) state_->set_fast(raw.size() <= kFastBytesMax);
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

Status ChunkDecoder::decode(ByteView stored, bool is_raw, const Digest& id, MutableByteView raw) {
  if (is_raw) {
    if (stored.size() != raw.size()) {
      return fail(ErrorCode::kCorruption,
                  fmt::format("raw chunk has {} bytes instead of {}", stored.size(), raw.size()));
    }
    std::ranges::copy(stored, raw.begin());
  } else {
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
  }
  const Digest found = sha256(raw);
  if (found != id) {
    return fail(ErrorCode::kCorruption, "content has the hash " + found.hex());
  }
  return {};
}

}  // namespace varve::chunkstore
