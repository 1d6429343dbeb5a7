#include "base/bytes.h"

#include <gtest/gtest.h>

namespace varve {
namespace {

TEST(BytesTest, LittleEndianRoundTrip) {
  Bytes bytes;
  append_le<uint32_t>(bytes, 0x01020304);
  append_le<uint16_t>(bytes, 0xa0b0);
  EXPECT_EQ(bytes, (Bytes{4, 3, 2, 1, 0xb0, 0xa0}));
  EXPECT_EQ(load_le<uint32_t>(bytes.data()), 0x01020304u);
}

TEST(BytesTest, AlignUpKeepsMultiples) {
  EXPECT_EQ(align_up(0, 4096), 0u);
  EXPECT_EQ(align_up(1, 4096), 4096u);
  EXPECT_EQ(align_up(4096, 4096), 4096u);
}

TEST(BytesTest, QuotedKeepsUtf8AndEscapesWhatATerminalWouldObey) {
  EXPECT_EQ(quoted("a/ü"), "'a/ü'");
  EXPECT_EQ(quoted("a\n\x1b[2J"), "'a\\x0a\\x1b[2J'");
  EXPECT_EQ(quoted("\xff\xc3"), "'\\xff\\xc3'");
  EXPECT_EQ(quoted("\xc2\x9b"), "'\\xc2\\x9b'");
  EXPECT_EQ(quoted("it's"), "'it\\x27s'");
}

TEST(BytesTest, Utf8IsWhatRfc3629Allows) {
  for (const char* good : {"", "a", "ü", "\xe0\xa0\x80", "\xed\x9f\xbf", "\xf0\x90\x80\x80",
                           "\xf4\x8f\xbf\xbf", "\x7f\xc2\x80"}) {
    EXPECT_TRUE(is_utf8(good)) << quoted(good);
  }
  EXPECT_TRUE(is_utf8(std::string_view("\0", 1)));
  // Cut off, a lone continuation, over-long, a surrogate, behind U+10FFFF.
  for (const char* bad : {"a\xc3", "\x80", "\xc0\xaf", "\xe0\x9f\xbf", "\xed\xa0\x80",
                          "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xff"}) {
    EXPECT_FALSE(is_utf8(bad)) << quoted(bad);
  }
}

TEST(BytesTest, HumanBytesPicksTheUnit) {
  EXPECT_EQ(human_bytes(0), "0 B");
  EXPECT_EQ(human_bytes(1023), "1023 B");
  EXPECT_EQ(human_bytes(1536), "1.5 KiB");
  EXPECT_EQ(human_bytes(~0ULL), "16.0 EiB");
}

}  // namespace
}  // namespace varve
