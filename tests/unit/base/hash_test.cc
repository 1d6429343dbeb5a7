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

}  // namespace
}  // namespace varve
