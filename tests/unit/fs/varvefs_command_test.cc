#include <gtest/gtest.h>
#include <stdio.h>
#include <stdlib.h>

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

}  // namespace
}  // namespace varve::fs
