#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "launcher/spec.h"

namespace varve::launcher {

/// One option of `varve run`, `varve mount` or `varve umount`; the same table parses, prints
/// --help and is compared with varve(1) by a test.
struct OptionRow {
  const char* name;         ///< With its dashes.
  const char* placeholder;  ///< Of its value; nullptr for a flag.
  const char* help;
};
std::span<const OptionRow> run_options();
std::span<const OptionRow> mount_options();

struct MountSpec {
  bool help = false;  ///< Print help; nothing else is set for sure.
  std::string image;
  std::string directory;
  std::string store;
  std::vector<std::string> extra_layers;
  std::string domain = "default";
  std::string run_dir = "/run/varve";
};

/// `args` without the subcommand. Options stand before and after the image; the command begins
/// after "--" or at the first word after the image that is no option. What follows --help is not
/// looked at. Errors: kInvalidArgument.
Result<Spec> parse_run(const std::vector<std::string>& args);
Result<MountSpec> parse_mount(const std::vector<std::string>& args, bool with_image);

/// The text of --help.
std::string usage();

}  // namespace varve::launcher
