#include <gtest/gtest.h>

#include "tests/unit/fs/fake_request.h"

namespace varve::fs {
namespace {

TEST(RequestTest, TakesTheNameUpToItsNul) {
  const Bytes tail = {'a', 'b', 0, 'c'};
  EXPECT_EQ(FakeRequest({}, {}, tail).name(), "ab");
}

TEST(RequestTest, ANameWithoutNulIsNone) {
  const Bytes tail = {'a', 'b'};
  EXPECT_EQ(FakeRequest({}, {}, tail).name(), "");
  EXPECT_FALSE(FakeRequest({}, {}, tail).name_is_too_long());
}

TEST(RequestTest, KnowsNamesThatAreTooLong) {
  Bytes tail(256, 'x');
  tail.back() = 0;
  EXPECT_EQ(FakeRequest({}, {}, tail).name().size(), 255u);
  tail.back() = 'x';
  tail.push_back(0);
  EXPECT_TRUE(FakeRequest({}, {}, tail).name_is_too_long());
  EXPECT_EQ(FakeRequest({}, {}, tail).name(), "");
}

TEST(RequestTest, AnArgumentThatIsTooShortIsNone) {
  const Bytes argument(sizeof(fuse::ReadIn) - 1);
  EXPECT_EQ(FakeRequest({}, argument).argument<fuse::ReadIn>(), nullptr);
  EXPECT_NE(FakeRequest({}, argument).argument<fuse::GetxattrIn>(), nullptr);
}

TEST(RequestTest, KnowsTheFixedPartOfEveryRequestThatCarriesNames) {
  EXPECT_EQ(fuse::fixed_argument_bytes(fuse::kLookup), 0u);
  EXPECT_EQ(fuse::fixed_argument_bytes(fuse::kGetxattr), 8u);
  EXPECT_EQ(fuse::fixed_argument_bytes(fuse::kBatchForget), 8u);
  EXPECT_EQ(fuse::fixed_argument_bytes(fuse::kReaddirplus), 40u);
  EXPECT_EQ(fuse::fixed_argument_bytes(0xffffffff), 0u);
}

}  // namespace
}  // namespace varve::fs
