#pragma once

#include <cstddef>
#include <cstdint>

#include "base/bytes.h"

/// Content-defined chunking: FastCDC with normalised chunking.
/// Source: Xia et al., "FastCDC: a Fast and Efficient Content-Defined Chunking Approach for Data
/// Deduplication", USENIX ATC 2016. varve-erofs(5) defines the parameters used here.
namespace varve::chunkstore::fast_cdc {

inline constexpr size_t kChunkBytesMin = 32 << 10;
inline constexpr size_t kChunkBytesNormal = 128 << 10;
inline constexpr size_t kChunkBytesMax = 512 << 10;

/// Gear value `i` is the first 8 bytes, little-endian, of the SHA-256 of this text followed by the
/// one byte `i`.
inline constexpr const char* kGearSeed = "varve fastcdc gear 1";
/// The fingerprint starts at 0 before the byte at offset kChunkBytesMin and takes each byte as
/// f = (f << 1) + gear[byte] mod 2^64. The chunk ends after a byte at whose end the top
/// kBitsBeforeNormal bits of f are zero, from offset kChunkBytesNormal on the top kBitsAfterNormal
/// bits; at the latest at kChunkBytesMax.
inline constexpr unsigned kBitsBeforeNormal = 19;
inline constexpr unsigned kBitsAfterNormal = 15;

/// The length of the first chunk of `data`, 1 … kChunkBytesMax; `data` is not empty. Unless the
/// file ends where `data` ends, `data` holds at least kChunkBytesMax bytes.
/// Cost: ~3,500 MB/s a core beyond the first kChunkBytesMin bytes, which are not looked at.
size_t first_chunk_size(ByteView data);

}  // namespace varve::chunkstore::fast_cdc
