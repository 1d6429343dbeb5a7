#include "base/hash.h"

#include <gtest/gtest.h>

namespace varve {
namespace {

// FIPS 180-4, "abc".
constexpr char kAbc[] = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

TEST(HashTest, Sha256MatchesThePublishedVector) {
  EXPECT_EQ(sha256(as_bytes("abc")).hex(), kAbc);
  Sha256 pieces;
  pieces.update(as_bytes("a"));
  pieces.update(as_bytes(""));
  pieces.update(as_bytes("bc"));
  EXPECT_EQ(pieces.finish().hex(), kAbc);
}

TEST(HashTest, HexParsesOnlyWhatHexPrints) {
  EXPECT_EQ(Digest::from_hex(kAbc)->hex(), kAbc);
  EXPECT_FALSE(Digest::from_hex("").has_value());
  EXPECT_FALSE(Digest::from_hex(std::string(64, 'A')).has_value());
  EXPECT_FALSE(Digest::from_hex(std::string(63, 'a')).has_value());
  EXPECT_FALSE(Digest::from_hex(std::string(65, 'a')).has_value());
  EXPECT_FALSE(Digest::from_hex(std::string(63, 'a') + "g").has_value());
}

TEST(HashTest, Xxh3DependsOnEveryByte) {
  EXPECT_NE(xxh3_64(as_bytes("abc")), xxh3_64(as_bytes("abd")));
  EXPECT_EQ(xxh3_128(as_bytes("abc")), xxh3_128(as_bytes("abc")));
}

TEST(HashTest, Xxh3OfPiecesIsWhatXxhsumPrints) {
  // printf abc | xxhsum -H128
  constexpr std::array<uint8_t, 16> kPrinted = {0x06, 0xb0, 0x5a, 0xb6, 0x73, 0x3a, 0x61, 0x85,
                                                0x78, 0xaf, 0x5f, 0x94, 0x89, 0x2f, 0x39, 0x50};
  EXPECT_EQ(xxh3_128(as_bytes("abc")).canonical(), kPrinted);
  Xxh3Hasher128 pieces;
  pieces.update(as_bytes("ab"));
  pieces.update(as_bytes(""));
  pieces.update(as_bytes("c"));
  EXPECT_EQ(pieces.value().canonical(), kPrinted);
  EXPECT_EQ(Xxh3Hasher128().value(), xxh3_128({}));
}

}  // namespace
}  // namespace varve
