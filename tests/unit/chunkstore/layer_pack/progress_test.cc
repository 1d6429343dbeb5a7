#include "chunkstore/layer_pack/progress.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <string>
#include <thread>

#include "base/clock.h"

namespace varve::layer_pack {
namespace {

std::string text_of(std::FILE* file) {
  std::fseek(file, 0, SEEK_END);
  std::string text(static_cast<size_t>(std::ftell(file)), '\0');
  std::rewind(file);
  EXPECT_EQ(std::fread(text.data(), 1, text.size(), file), text.size());
  return text;
}

TEST(ProgressTest, OnATerminalABarIsDrawnAndTakenAwayAgain) {
  std::FILE* const file = std::tmpfile();
  ToolIo io;
  io.err = file;
  io.err_is_terminal = true;
  {
    Progress progress(io, "packing");
    progress.add_entries(7);
    progress.add_bytes(1 << 20);
    progress.add_expected_bytes(4 << 20);
    const Deadline deadline = deadline_after_ms(60'000);
    while (text_of(file).empty() && MonotonicClock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
  const std::string text = text_of(file);
  EXPECT_NE(text.find("packing [#######                       ] 7 entries, 1.0 MiB of 4.0 MiB"),
            std::string::npos)
      << text;
  EXPECT_TRUE(text.ends_with("\r\033[K"));
  EXPECT_EQ(text.find('\n'), std::string::npos);
  std::fclose(file);
}

TEST(ProgressTest, ElsewhereShortWorkSaysNothing) {
  std::FILE* const file = std::tmpfile();
  ToolIo io;
  io.err = file;
  {
    Progress progress(io, "packing");
    progress.add_bytes(5);
  }
  EXPECT_EQ(text_of(file), "");
  std::fclose(file);
}

}  // namespace
}  // namespace varve::layer_pack
