#include "launcher/options.h"

#include <gtest/gtest.h>
#include <stdlib.h>

namespace varve::launcher {
namespace {

using Words = std::vector<std::string>;

TEST(OptionsTest, OptionsStandBeforeAndAfterTheImage) {
  const auto spec =
      parse_run({"--memory", "1G", "debian:12", "--cpus=0.5", "--pids", "7", "--", "ls", "-l"});
  ASSERT_TRUE(spec) << spec.error().to_string();
  EXPECT_EQ(spec->image, "debian:12");
  EXPECT_EQ(spec->memory_bytes_max, uint64_t{1} << 30);
  EXPECT_EQ(spec->cpu_milli_max, 500u);
  EXPECT_EQ(spec->pids_max, 7u);
  EXPECT_EQ(spec->command, (Words{"ls", "-l"}));
}

TEST(OptionsTest, TheCommandBeginsAtTheFirstWordAfterTheImage) {
  const auto spec = parse_run({"image", "python3", "-c", "--memory", "--", "x"});
  ASSERT_TRUE(spec);
  EXPECT_EQ(spec->command, (Words{"python3", "-c", "--memory", "--", "x"}));
  EXPECT_FALSE(spec->memory_bytes_max);
}

TEST(OptionsTest, DashesMayComeBeforeTheImage) {
  const auto spec = parse_run({"--keep", "--", "image", "-x"});
  ASSERT_TRUE(spec);
  EXPECT_EQ(spec->image, "image");
  EXPECT_EQ(spec->command, (Words{"-x"}));
  EXPECT_TRUE(spec->keep);
}

TEST(OptionsTest, EveryOptionLandsInItsField) {
  ASSERT_EQ(::setenv("VARVE_TEST_INHERITED", "from outside", 1), 0);
  const auto spec = parse_run({"--store",
                               "file:///s",
                               "--layer",
                               "a",
                               "--layer",
                               "b",
                               "--env",
                               "K=V",
                               "--env",
                               "VARVE_TEST_INHERITED",
                               "--env",
                               "VARVE_TEST_UNSET",
                               "--workdir",
                               "/w",
                               "--user",
                               "me:us",
                               "--entrypoint",
                               "",
                               "--net",
                               "host",
                               "--rw-size",
                               "1M",
                               "-it",
                               "--allow-sudo",
                               "--stats",
                               "f",
                               "--print-plan",
                               "--domain",
                               "d",
                               "--run-dir",
                               "/r",
                               "--state-dir",
                               "/s",
                               "image"});
  ASSERT_TRUE(spec) << spec.error().to_string();
  EXPECT_EQ(spec->store, "file:///s");
  EXPECT_EQ(spec->extra_layers, (Words{"a", "b"}));
  EXPECT_EQ(spec->env, (Words{"K=V", "VARVE_TEST_INHERITED=from outside"}));
  EXPECT_EQ(spec->workdir, "/w");
  EXPECT_EQ(spec->user, "me:us");
  EXPECT_EQ(spec->entrypoint, "");
  EXPECT_EQ(spec->network, NetworkMode::kHost);
  EXPECT_EQ(spec->rw_bytes_max, uint64_t{1} << 20);
  EXPECT_TRUE(spec->terminal && spec->allow_sudo && spec->print_plan && !spec->keep);
  EXPECT_EQ(spec->stats_path, "f");
  EXPECT_EQ(spec->domain, "d");
  EXPECT_EQ(spec->run_dir, "/r");
  EXPECT_EQ(spec->state_dir, "/s");
  EXPECT_TRUE(spec->command.empty());
}

TEST(OptionsTest, WrongCommandLinesAreRefused) {
  for (const Words& words :
       {Words{}, Words{"--"}, Words{""}, Words{"--memory"}, Words{"--memory", "x", "image"},
        Words{"--cpus", "x", "image"}, Words{"--pids", "-1", "image"},
        Words{"--net", "bridge", "image"}, Words{"--nope", "image"}, Words{"--keep=yes", "image"},
        Words{"--store", "", "image"}, Words{"--store=", "image"}, Words{"image", "--nope"},
        Words{"-x", "image"}, Words{"--env", "", "image"}, Words{"--stats=", "image"}}) {
    const auto spec = parse_run(words);
    ASSERT_FALSE(spec) << testing::PrintToString(words);
    EXPECT_EQ(spec.error().code(), ErrorCode::kInvalidArgument);
  }
}

TEST(OptionsTest, NumbersOutOfRangeAreNamedWithOptionValueAndRange) {
  struct Case {
    std::string option, below, least, most, above, range;
  };
  for (const Case& c :
       {Case{"--memory", "1023k", "1M", "16383T", "16383.5T", "a size from 1M to 16383T"},
        Case{"--rw-size", "63k", "64k", "16383T", "99999T", "a size from 64k to 16383T"},
        Case{"--cpus", "0.009", "0.01", "1000000", "1000000.001", "CPUs from 0.01 to 1000000"},
        Case{"--pids", "1", "2", "4194304", "4194305", "a number from 2 to 4194304"}}) {
    for (const std::string& value : {c.below, c.above, std::string("x")}) {
      const auto spec = parse_run({c.option, value, "image"});
      ASSERT_FALSE(spec) << value;
      const std::string text = spec.error().to_string();
      EXPECT_TRUE(text.starts_with(c.option + ": '" + value + "' is not ")) << text;
      EXPECT_NE(text.find(c.range), std::string::npos) << text;
    }
    for (const std::string& value : {c.least, c.most}) {
      const auto spec = parse_run({c.option, value, "image"});
      EXPECT_TRUE(spec) << spec.error().to_string();
    }
  }
}

TEST(OptionsTest, MountTakesAnImageAndADirectory) {
  const auto spec = parse_mount({"--run-dir", "/r", "image", "/mnt", "--domain", "d"}, true);
  ASSERT_TRUE(spec);
  EXPECT_EQ(spec->image, "image");
  EXPECT_EQ(spec->directory, "/mnt");
  EXPECT_EQ(spec->run_dir, "/r");
  EXPECT_EQ(spec->domain, "d");
  EXPECT_FALSE(parse_mount({"image"}, true));
  EXPECT_FALSE(parse_mount({"--store", "", "image", "/mnt"}, true));
  EXPECT_TRUE(parse_mount({"/mnt"}, false));
  EXPECT_FALSE(parse_mount({"/mnt", "x"}, false));
}

TEST(OptionsTest, HelpCanBeAskedForWhereverAnOptionCanStand) {
  for (const Words& words :
       {Words{"--help"}, Words{"-h"}, Words{"image", "--help"}, Words{"image", "-h", "--nope"},
        Words{"--pids", "7", "image", "--keep", "--help", "ls"}}) {
    const auto spec = parse_run(words);
    ASSERT_TRUE(spec) << spec.error().to_string();
    EXPECT_TRUE(spec->help) << testing::PrintToString(words);
  }
  for (const Words& words : {Words{"image", "ls", "--help"}, Words{"image", "--", "--help"},
                             Words{"--", "image", "--help"}, Words{"image", "--", "ls", "-h"},
                             Words{"--workdir", "--help", "image"}}) {
    const auto spec = parse_run(words);
    ASSERT_TRUE(spec) << spec.error().to_string();
    EXPECT_FALSE(spec->help) << testing::PrintToString(words);
  }
  EXPECT_FALSE(parse_run({"image", "--nope", "--help"}));
  EXPECT_FALSE(parse_run({"--help=yes"}));
  for (const bool mounts : {true, false}) {
    EXPECT_TRUE(parse_mount({"-h"}, mounts)->help);
    EXPECT_TRUE(parse_mount({"one", "--help"}, mounts)->help);
  }
}

TEST(OptionsTest, HelpNamesEveryOption) {
  const std::string text = usage();
  for (const OptionRow& row : run_options())
    EXPECT_NE(text.find(row.name), std::string::npos) << row.name;
  for (const OptionRow& row : mount_options())
    EXPECT_NE(text.find(row.name), std::string::npos) << row.name;
}

}  // namespace
TEST(OptionsTest, TheShortFormsStandInEitherOrder) {
  for (const char* form : {"-it", "-ti", "-t"}) {
    const auto spec = parse_run({form, "image"});
    ASSERT_TRUE(spec) << spec.error().to_string();
    EXPECT_TRUE(spec->terminal) << form;
  }
}

}  // namespace varve::launcher
