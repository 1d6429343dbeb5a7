#include "chunkstore/erofs/crc32c.h"

#include <gtest/gtest.h>

namespace varve::chunkstore::erofs {
namespace {

TEST(Crc32cTest, MatchesThePublishedCheckValue) {
  // The check value of CRC-32/ISCSI is defined with a final inversion.
  EXPECT_EQ(crc32c(0xFFFFFFFF, as_bytes("123456789")) ^ 0xFFFFFFFF, 0xE3069283U);
}

TEST(Crc32cTest, ContinuesFromASeed) {
  const uint32_t whole = crc32c(0xFFFFFFFF, as_bytes("123456789"));
  EXPECT_EQ(crc32c(crc32c(0xFFFFFFFF, as_bytes("1234")), as_bytes("56789")), whole);
}

}  // namespace
}  // namespace varve::chunkstore::erofs
