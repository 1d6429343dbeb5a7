#include "launcher/spec.h"

#include <gtest/gtest.h>

namespace varve::launcher {
namespace {

TEST(SpecTest, CpusAreThousandths) {
  EXPECT_EQ(parse_cpus("2"), 2000u);
  EXPECT_EQ(parse_cpus("0.5"), 500u);
  EXPECT_EQ(parse_cpus("0.125"), 125u);
  for (const char* text : {"", "a", "-1", "1.2345", "5000000000"})
    EXPECT_FALSE(parse_cpus(text)) << text;
}

TEST(SpecTest, NumbersHaveOneSpelling) {
  EXPECT_EQ(parse_u32("0"), 0u);
  EXPECT_EQ(parse_u32("4294967295"), 4294967295u);
  for (const char* text : {"", "00", "01", "4294967296", "-1", " 1", "1 "}) {
    EXPECT_FALSE(parse_u32(text)) << text;
  }
}

struct BadSpec {
  const char* option;
  void (*spoil)(Spec&);
};

class SpecValidateTest : public testing::TestWithParam<BadSpec> {};

TEST_P(SpecValidateTest, NamesTheOptionThatIsWrong) {
  Spec spec;
  spec.image = "debian:12";
  ASSERT_TRUE(validate(spec));
  GetParam().spoil(spec);
  const Status status = validate(spec);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code(), ErrorCode::kInvalidArgument);
  EXPECT_TRUE(status.error().to_string().starts_with(GetParam().option))
      << status.error().to_string();
}

INSTANTIATE_TEST_SUITE_P(
    Options, SpecValidateTest,
    testing::Values(BadSpec{"IMAGE", [](Spec& s) { s.image.clear(); }},
                    BadSpec{"--layer", [](Spec& s) { s.extra_layers = {"abc"}; }},
                    BadSpec{"--layer", [](Spec& s) { s.extra_layers = {std::string(64, 'G')}; }},
                    BadSpec{"--env", [](Spec& s) { s.env = {"=x"}; }},
                    BadSpec{"--env", [](Spec& s) { s.env = {"NAME"}; }},
                    BadSpec{"--env", [](Spec& s) { s.env = {std::string("A=b\0c", 5)}; }},
                    BadSpec{"--workdir", [](Spec& s) { s.workdir = "relative"; }},
                    BadSpec{"--keep",
                            [](Spec& s) {
                              s.keep = true;
                              s.rw_bytes_max = 1 << 20;
                            }},
                    BadSpec{"--user", [](Spec& s) { s.user = ":5"; }},
                    BadSpec{"--user: '4294967295' is not an id: they go from 0 to 4294967294",
                            [](Spec& s) { s.user = "4294967295"; }},
                    BadSpec{"--user: '4294967296' is not an id",
                            [](Spec& s) { s.user = "me:4294967296"; }},
                    BadSpec{"--run-dir", [](Spec& s) { s.run_dir = "run"; }},
                    BadSpec{"--state-dir", [](Spec& s) { s.state_dir = ""; }},
                    BadSpec{"--domain", [](Spec& s) { s.domain = "../other"; }}));

}  // namespace
}  // namespace varve::launcher
