#pragma once

#include <cstdint>

#include "base/bytes.h"

namespace varve::chunkstore::erofs {

/// CRC-32C (Castagnoli) of `bytes` continuing from `seed`, without a final inversion, as EROFS's
/// superblock checksum uses it (seed 0xFFFFFFFF). Bytewise: meant for 3 KiB.
uint32_t crc32c(uint32_t seed, ByteView bytes);

}  // namespace varve::chunkstore::erofs
