#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/file_io.h"
#include "launcher/options.h"

namespace varve::launcher {
namespace {

/// The options that varve(1) describes: ".BR" or ".B" lines that follow ".TP" and start with "\-".
std::set<std::string> described_options() {
  const auto bytes = read_file(VARVE_MAN_PAGE, 1 << 20);
  EXPECT_TRUE(bytes);
  std::set<std::string> options;
  std::string_view text = as_text(*bytes);
  bool after_tag = false;
  while (!text.empty()) {
    std::string line(text.substr(0, text.find('\n')));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    if (after_tag && line.starts_with(".B") && line.find("\\-") != std::string::npos) {
      std::string name;
      for (size_t at = line.find("\\-"); at < line.size() && line[at] != ' '; ++at) {
        if (line[at] != '\\') name += line[at];
      }
      options.insert(name);
    }
    after_tag = line == ".TP";
  }
  return options;
}

TEST(VarveManPageTest, ThePageDescribesExactlyTheOptionsThatExist) {
  std::set<std::string> existing;
  for (const OptionRow& row : run_options()) existing.insert(row.name);
  for (const OptionRow& row : mount_options()) existing.insert(row.name);
  EXPECT_EQ(described_options(), existing);
}

}  // namespace
}  // namespace varve::launcher
