#include <gtest/gtest.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <array>

#include "base/file_io.h"
#include "base/temp_dir.h"
#include "fs/varvefs.h"

namespace varve::fs {
namespace {

struct Output {
  int status = 0;
  std::string out;
  std::string err;
};

Output run(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "varvefs");
  char* out = nullptr;
  char* err = nullptr;
  size_t out_size = 0;
  size_t err_size = 0;
  ToolIo io;
  io.out = open_memstream(&out, &out_size);
  io.err = open_memstream(&err, &err_size);
  Output output;
  output.status = varvefs_main(static_cast<int>(arguments.size()), arguments.data(), io);
  fclose(io.out);
  fclose(io.err);
  output.out.assign(out, out_size);
  output.err.assign(err, err_size);
  free(out);
  free(err);
  return output;
}

TEST(VarvefsCommandTest, HelpAndVersionGoToStandardOutput) {
  const Output help = run({"--help"});
  EXPECT_EQ(help.status, 0);
  EXPECT_NE(help.out.find("--transport"), std::string::npos);
  const Output shown = run({"--version"});
  EXPECT_EQ(shown.status, 0);
  EXPECT_EQ(shown.out, std::string("varvefs ") + version() + "\n");
}

TEST(VarvefsCommandTest, WrongArgumentsAreRefusedWithTheirName) {
  for (const std::vector<const char*>& arguments :
       {std::vector<const char*>{"--transport", "pigeon"},
        {"--transport", "1"},
        {"--cache-memory", "0"},
        {"--read-deadline-ms", "0"},
        {"--linger", "-1"},
        {"--unheard-of"}}) {
    const Output output = run(arguments);
    EXPECT_EQ(output.status, error_code_to_exit_status(ErrorCode::kInvalidArgument));
    EXPECT_NE(output.err.find(arguments.front()), std::string::npos) << output.err;
    EXPECT_EQ(output.out, "");
  }
}

TEST(VarvefsCommandTest, NumbersOutOfRangeAreNamedWithOptionValueAndRange) {
  const std::vector<std::array<const char*, 4>> cases = {
      {"--cache-memory", "1048577", "1", "1048576"},
      {"--read-deadline-ms", "3600001", "1", "3600000"},
      {"--attach-deadline-ms", "0", "1", "3600000"},
      {"--fetch-threads", "1025", "1", "1024"},
      {"--readahead-kb", "-1", "0", "1048576"},
      {"--idle", "31536001", "0", "31536000"},
      {"--linger", "31536001", "0", "31536000"}};
  for (const auto& [option, value, least, most] : cases) {
    const Output output = run({option, value});
    EXPECT_EQ(output.status, error_code_to_exit_status(ErrorCode::kInvalidArgument));
    for (const char* part : {option, value, least, most}) {
      EXPECT_NE(output.err.find(part), std::string::npos) << part << ": " << output.err;
    }
  }
}

TEST(VarvefsCommandTest, WhatCannotBeUsedIsNamedAtTheStartAndNothingIsMade) {
  const TempDir dir = TempDir::create("varve-command-").value();
  const std::string run_dir = dir.path() + "/run";
  const std::string file = dir.path() + "/file";
  ASSERT_TRUE(write_file_atomic(file, as_bytes("x")));
  const std::string log = dir.path() + "/none/varvefs.log";
  for (const auto& [option, value] :
       std::vector<std::pair<const char*, std::string>>{{"--spool-dir", "/proc/nope"},
                                                        {"--spool-dir", file},
                                                        {"--log-file", log},
                                                        {"--log-file", dir.path()}}) {
    const Output output =
        run({"--foreground", "--run-dir", run_dir.c_str(), option, value.c_str()});
    EXPECT_NE(output.status, 0) << option;
    EXPECT_TRUE(output.err.starts_with("varvefs: " + std::string(option) + ": ")) << output.err;
    EXPECT_NE(output.err.find(varve::quoted(value)), std::string::npos) << output.err;
    EXPECT_NE(::access(run_dir.c_str(), F_OK), 0) << option;
  }
  EXPECT_NE(::access((dir.path() + "/none").c_str(), F_OK), 0);
  for (const char* bad : {"/proc/nope", file.c_str()}) {
    const Output output = run({"--foreground", "--run-dir", bad});
    EXPECT_NE(output.status, 0);
    EXPECT_TRUE(
        output.err.starts_with("varvefs: --run-dir: creating directory " + varve::quoted(bad)))
        << output.err;
  }
}

}  // namespace
}  // namespace varve::fs
