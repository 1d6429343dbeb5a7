#include "base/sha256_lanes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace varve {
namespace {

std::vector<Digest> one_by_one(const std::vector<ByteView>& messages) {
  std::vector<Digest> digests;
  for (const ByteView message : messages) digests.push_back(sha256(message));
  return digests;
}

Bytes noise(size_t size) {
  std::mt19937 random(static_cast<uint32_t>(size));
  Bytes bytes(size);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
  return bytes;
}

TEST(Sha256LanesTest, EveryLengthAloneGivesWhatOpensslGives) {
  if (!sha256_lanes::is_available()) GTEST_SKIP() << "this CPU has no SHA instructions";
  const Bytes bytes = noise(700);
  for (size_t size = 0; size <= bytes.size(); ++size) {
    // At every alignment in turn.
    const ByteView message =
        ByteView(bytes).subspan((bytes.size() - size) % 16 % (701 - size), size);
    Digest digest;
    sha256_lanes::run({&message, 1}, {&digest, 1});
    EXPECT_EQ(digest, sha256(message)) << size << " bytes";
  }
}

TEST(Sha256LanesTest, EveryLengthBesideOthersOfOtherLengthsGivesWhatOpensslGives) {
  const Bytes bytes = noise(700);
  std::vector<ByteView> messages;
  for (size_t size = 0; size <= bytes.size(); ++size)
    messages.push_back(ByteView(bytes).first(size));
  std::mt19937 random(1);
  for (int round = 0; round < 20; ++round) {
    std::shuffle(messages.begin(), messages.end(), random);
    for (const size_t count : {0, 1, 2, 3, 4, 5, 701}) {
      const std::vector<ByteView> some(messages.begin(),
                                       messages.begin() + static_cast<ptrdiff_t>(count));
      std::vector<Digest> digests(count);
      sha256_all(some, digests);
      EXPECT_EQ(digests, one_by_one(some));
    }
  }
}

TEST(Sha256LanesTest, LongMessagesGiveWhatOpensslGives) {
  const std::vector<Bytes> contents = {
      noise(1 << 20), noise((1 << 20) - 1), {}, noise(131'072), noise(3), noise(70'001), noise(64)};
  const std::vector<ByteView> messages(contents.begin(), contents.end());
  std::vector<Digest> digests(messages.size());
  sha256_all(messages, digests);
  EXPECT_EQ(digests, one_by_one(messages));
}

}  // namespace
}  // namespace varve
