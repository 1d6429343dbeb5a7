#pragma once

#include <gtest/gtest.h>
#include <sys/types.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/temp_dir.h"
#include "base/unique_fd.h"

namespace varve::launcher {

/// Real sandboxes on images made with mkfs.erofs from a busybox tree, served by fake_varvefs. Each
/// test starts and ends with the same mounts, cgroups, slots and files, or fails.
class LaunchTest : public testing::Test {
 public:
  struct Result {
    int status = -1;  ///< Exit status, or 1000 + signal.
    std::string out;
    std::string err;
  };
  /// A varve in the background, its standard output a pipe that closes when the sandbox is gone.
  struct Running {
    pid_t pid = -1;
    UniqueFd out;
    /// Reads until `text` has appeared; false at the end of the output.
    bool wait_for(const std::string& text);
    /// Reads to the end.
    std::string rest();
    int wait();
    std::string seen;
  };

  static void SetUpTestSuite();
  static void TearDownTestSuite();

 protected:
  void SetUp() override;
  void TearDown() override;

  /// "varve run" with the test's directories, then `args`.
  static std::vector<std::string> command(const std::vector<std::string>& args);
  static Result run(const std::vector<std::string>& args);
  /// Runs a shell script in the base image.
  static Result sh(const std::string& script, std::vector<std::string> options = {},
                   const std::string& image = "base");
  static Running start(const std::vector<std::string>& args);
  static Result execute(const std::vector<std::string>& words);
  /// Makes an image out of a directory below the suite's, see directory().
  static void make_image(const std::string& name, const std::string& tree);
  static std::string directory();
  static std::string state_dir() { return directory() + "/state"; }
  static std::string run_dir() { return directory() + "/run"; }

 private:
  static std::map<std::string, std::string> snapshot();
  std::map<std::string, std::string> before_;
};

/// Marks a suite's directory as one in use: locked as long as the result lives.
UniqueFd own_suite(const std::string& directory);
/// Removes what interrupted suites left: directories `<parent>/<prefix>*` whose owner is dead.
void remove_stale_suites(const std::string& parent, const std::string& prefix);

/// Programs under test.
std::string varve_program();

}  // namespace varve::launcher
