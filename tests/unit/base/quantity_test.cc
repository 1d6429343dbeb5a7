#include "base/quantity.h"

#include <gtest/gtest.h>

namespace varve {
namespace {

TEST(QuantityTest, SizesAreBinaryMultiples) {
  EXPECT_EQ(parse_bytes("512"), 512u);
  EXPECT_EQ(parse_bytes("64k"), 64u << 10);
  EXPECT_EQ(parse_bytes("1.5G"), 3u << 29);
  EXPECT_EQ(parse_bytes("2GiB"), uint64_t{2} << 30);
  EXPECT_EQ(parse_bytes("3MB"), 3u << 20);
  EXPECT_EQ(parse_bytes("1t"), uint64_t{1} << 40);
  EXPECT_EQ(parse_bytes("16383T"), uint64_t{16383} << 40);
  EXPECT_EQ(parse_bytes("1125899906842624"), uint64_t{1} << 50);
}

TEST(QuantityTest, MalformedSizesAreRefused) {
  for (const char* text : {"", "M", "-1", "+1", "1x", "1.", ".5", "1.2345", "1 M", "1MM", "0x10",
                           "99999999999999999", "16778T", "1.5.5", "1e3"}) {
    EXPECT_FALSE(parse_bytes(text)) << text;
  }
}

}  // namespace
}  // namespace varve
