#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdio>
#include <functional>
#include <map>
#include <optional>

#include "base/bytes.h"
#include "base/quantity.h"
#include "chunkstore/layer_pack/commands.h"
#include "chunkstore/layer_pack/layer_pack.h"

namespace varve::layer_pack {
namespace {

constexpr const char* kImageHelp = "name[:tag], id or unique prefix of an id of an image or layer";

const std::map<std::string, SourceType> kSourceTypes = {
    {"auto", SourceType::kAuto},
    {"directory", SourceType::kDirectory},
    {"tar", SourceType::kTar},
    {"oci-layout", SourceType::kOciLayout},
    {"docker-archive", SourceType::kDockerArchive}};

/// Replaces the name of a source type by its number, which is how an enumeration is parsed.
std::string to_source_type(std::string& text) {
  const auto found = kSourceTypes.find(text);
  if (found == kSourceTypes.end()) {
    return varve::quoted(text) + " is not auto, directory, tar, oci-layout or docker-archive";
  }
  text = std::to_string(static_cast<int>(found->second));
  return "";
}

constexpr uint64_t kMemoryMaxMin = uint64_t{128} << 20;
constexpr uint64_t kMemoryMaxMax = uint64_t{1024} << 40;

/// Replaces a size by its number of bytes.
std::string to_memory_max(std::string& text) {
  const auto bytes = parse_bytes(text);
  if (!bytes || *bytes < kMemoryMaxMin || *bytes > kMemoryMaxMax) {
    return varve::quoted(text) + " is not a size from 128M to 1024T, such as 512M";
  }
  text = std::to_string(*bytes);
  return "";
}

/// The first argument where it is in the place of a subcommand and is none.
std::optional<std::string> unknown_subcommand(const CLI::App& app, int argc,
                                              const char* const* argv) {
  if (argc < 2 || *argv[1] == '-') return {};
  const auto has_name = [&](const CLI::App* command) { return command->get_name() == argv[1]; };
  if (!app.get_subcommands(has_name).empty()) return {};
  return argv[1];
}

/// Everything that the command line can say, and what it asked for.
struct CommandLine {
  BuildOptions build;
  DiffOptions diff;
  ComposeOptions compose;
  FlattenOptions flatten;
  ListOptions ls;
  ListOptions tree;
  InspectOptions inspect;
  CatOptions cat;
  ExportOptions export_;
  RmOptions rm;
  VerifyOptions verify;
  StatsOptions stats;
  GcOptions gc;
  std::string grace = "1d";
  std::function<Status(const ToolIo&)> run;
};

void add_store(CLI::App& command, CommonOptions& options) {
  command.add_option("--store", options.store, "Store URL, e.g. file:///srv/store")
      ->envname("VARVE_STORE")
      ->required();
}

void add_common(CLI::App& command, CommonOptions& options) {
  add_store(command, options);
  command.add_flag("--json", options.is_json, "Print JSON, for programs");
}

void add_pack(CLI::App& command, PackOptions& options) {
  command
      .add_option("--level", options.level,
                  "zstd level (default: faster than 3 and nearly as small)")
      ->check(CLI::Range(chunkstore::kCompressionLevelMin, chunkstore::kCompressionLevelMax));
  command.add_option("--jobs", options.job_count, "Threads that compress (default: one a CPU)")
      ->check(CLI::Range(1, 1024));
  command
      .add_option("--memory-max", options.memory_max,
                  "Memory to stay below, e.g. 512M (the default); at least 128M")
      ->transform(CLI::Validator(to_memory_max, ""));
  command.add_option("--temp-dir", options.temp_directory,
                     "Directory for what does not fit (default: $TMPDIR or /var/tmp)");
}

void add_build(CLI::App& app, CommandLine& line) {
  CLI::App& command = *app.add_subcommand("build", "Pack a directory, tar or OCI image");
  BuildOptions& options = line.build;
  command.add_option("SOURCE", options.source, "Directory, tar (- is standard input) or OCI image")
      ->required();
  add_common(command, options);
  command.add_option("--tag", options.tag, "Name the image name[:tag]");
  command.add_option("--base", options.base, "Stack the new layers on those of this image");
  command.add_option("--env", options.env, "Set KEY=VALUE in the image's configuration")
      ->allow_extra_args(false);
  command
      .add_option("--source-type", options.source_type,
                  "auto, directory, tar, oci-layout or docker-archive")
      ->transform(CLI::Validator(to_source_type, ""));
  command.add_option(
      "--platform", options.platform,
      "os/architecture[/variant] that an OCI image has to be for (default: linux/amd64)");
  command.add_option("--reference", options.reference,
                     "Image to take where an archive holds several");
  add_pack(command, options.pack);
  command.callback(
      [&line] { line.run = [&](const ToolIo& io) { return run_build(line.build, io); }; });
}

void add_diff(CLI::App& app, CommandLine& line) {
  CLI::App& command =
      *app.add_subcommand("diff", "Pack an OverlayFS upper directory as a layer on an image");
  DiffOptions& options = line.diff;
  command.add_option("DIR", options.directory, "The upper directory")->required();
  command.add_option("--base", options.base, "Image that the overlay was mounted on")->required();
  command.add_flag("--userxattr", options.has_user_marks, "The overlay was mounted with userxattr");
  command.add_option("--tag", options.tag, "Name the image name[:tag]");
  add_common(command, options);
  add_pack(command, options.pack);
  command.callback(
      [&line] { line.run = [&](const ToolIo& io) { return run_diff(line.diff, io); }; });
}

void add_compose(CLI::App& app, CommandLine& line) {
  CLI::App& command = *app.add_subcommand("compose", "Stack layers and images without copying");
  ComposeOptions& options = line.compose;
  command.add_option("LAYER-OR-IMAGE", options.parts, "Lowest first")->required();
  command.add_option("--tag", options.tag, "Name the image name[:tag]")->required();
  add_common(command, options);
  command.callback(
      [&line] { line.run = [&](const ToolIo& io) { return run_compose(line.compose, io); }; });
}

void add_flatten(CLI::App& app, CommandLine& line) {
  CLI::App& command =
      *app.add_subcommand("flatten", "Merge an image's layers into one, without copying data");
  FlattenOptions& options = line.flatten;
  command.add_option("IMAGE", options.image, kImageHelp)->required();
  command.add_option("--tag", options.tag, "Name the new image name[:tag]");
  add_common(command, options);
  add_pack(command, options.pack);
  command.callback(
      [&line] { line.run = [&](const ToolIo& io) { return run_flatten(line.flatten, io); }; });
}

void add_readers(CLI::App& app, CommandLine& line) {
  CLI::App& ls = *app.add_subcommand("ls", "List a directory of an image, or the images");
  ls.add_option("IMAGE", line.ls.image, kImageHelp);
  ls.add_option("PATH", line.ls.path, "Directory or file in the image (default: its root)");
  add_common(ls, line.ls);
  ls.callback([&line] { line.run = [&](const ToolIo& io) { return run_ls(line.ls, io); }; });

  CLI::App& inspect = *app.add_subcommand("inspect", "Show an image's layers and configuration");
  inspect.add_option("IMAGE", line.inspect.image, kImageHelp)->required();
  add_common(inspect, line.inspect);
  inspect.callback(
      [&line] { line.run = [&](const ToolIo& io) { return run_inspect(line.inspect, io); }; });

  CLI::App& tree = *app.add_subcommand("tree", "List everything in an image");
  tree.add_option("IMAGE", line.tree.image, kImageHelp)->required();
  tree.add_option("PATH", line.tree.path, "Where to begin (default: the root)");
  add_common(tree, line.tree);
  tree.callback([&line] { line.run = [&](const ToolIo& io) { return run_tree(line.tree, io); }; });

  CLI::App& cat = *app.add_subcommand("cat", "Write a file of an image to standard output");
  cat.add_option("IMAGE", line.cat.image, kImageHelp)->required();
  cat.add_option("PATH", line.cat.path, "File in the image; symlinks are followed inside it")
      ->required();
  add_store(cat, line.cat);
  cat.callback([&line] { line.run = [&](const ToolIo& io) { return run_cat(line.cat, io); }; });
}

void add_export(CLI::App& app, CommandLine& line) {
  CLI::App& command = *app.add_subcommand("export", "Write an image's merged tree to a file");
  ExportOptions& options = line.export_;
  command.add_option("IMAGE", options.image, kImageHelp)->required();
  CLI::Option_group& kind = *command.add_option_group("Output");
  kind.add_option("--erofs", options.erofs_file, "As an EROFS image; - is standard output");
  kind.add_option("--tar", options.tar_file, "As a tar; - is standard output");
  kind.require_option(1);
  add_common(command, options);
  command.add_option("--temp-dir", options.pack.temp_directory,
                     "Directory for what does not fit (default: $TMPDIR or /var/tmp)");
  command.callback(
      [&line] { line.run = [&](const ToolIo& io) { return run_export(line.export_, io); }; });
}

void add_store_commands(CLI::App& app, CommandLine& line) {
  CLI::App& rm = *app.add_subcommand("rm", "Remove names; gc deletes what then has none");
  rm.add_option("NAME", line.rm.names, "name[:tag]; the tag is latest when it is left out")
      ->required();
  add_common(rm, line.rm);
  rm.callback([&line] { line.run = [&](const ToolIo& io) { return run_rm(line.rm, io); }; });

  CLI::App& verify = *app.add_subcommand("verify", "Check every hash of everything in the store");
  add_common(verify, line.verify);
  verify.callback(
      [&line] { line.run = [&](const ToolIo& io) { return run_verify(line.verify, io); }; });

  CLI::App& stats = *app.add_subcommand("stats", "Show sizes and what images share");
  add_common(stats, line.stats);
  stats.callback(
      [&line] { line.run = [&](const ToolIo& io) { return run_stats(line.stats, io); }; });

  CLI::App& gc = *app.add_subcommand("gc", "Delete what no image needs");
  gc.add_option("--grace", line.grace,
                "How long something stays condemned before it is deleted: 90s, 15m, 1h, 7d")
      ->capture_default_str();
  gc.add_flag("--dry-run", line.gc.is_dry_run, "Only say what would be done");
  add_common(gc, line.gc);
  gc.callback([&line] { line.run = [&](const ToolIo& io) { return run_gc(line.gc, io); }; });
}

constexpr int64_t kGraceMaxS = int64_t{36'500} * 86'400;

/// "90", "90s", "15m", "1h", "7d" in seconds, at most kGraceMaxS.
std::optional<int64_t> parse_duration(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || value < 0) return {};
  const std::string_view unit = text.substr(static_cast<size_t>(end - text.data()));
  static const std::map<std::string_view, int64_t> kUnits = {
      {"", 1}, {"s", 1}, {"m", 60}, {"h", 3600}, {"d", 86400}};
  const auto found = kUnits.find(unit);
  if (found == kUnits.end() || value > kGraceMaxS / found->second) return {};
  return value * found->second;
}

int report(const ToolIo& io, const Error& error) {
  std::fprintf(io.err, "layer-pack: %s\n", error.to_string().c_str());
  return error_code_to_exit_status(error.code());
}

}  // namespace

int layer_pack_main(int argc, const char* const* argv, const ToolIo& io) {
  CommandLine line;
  CLI::App app("Packs trees into content-addressed layers and looks after a store of them",
               "layer-pack");
  app.set_version_flag("--version", "layer-pack " VARVE_VERSION);
  app.require_subcommand(1);
  add_build(app, line);
  add_compose(app, line);
  add_flatten(app, line);
  add_diff(app, line);
  add_readers(app, line);
  add_export(app, line);
  add_store_commands(app, line);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help) {
    const std::string text =
        help.get_name() == "CallForVersion" ? std::string(help.what()) + "\n" : app.help();
    std::fputs(text.c_str(), io.out);
    return 0;
  } catch (const CLI::ParseError& error) {
    if (const auto unknown = unknown_subcommand(app, argc, argv)) {
      return report(io, Error(ErrorCode::kInvalidArgument,
                              "there is no command " + varve::quoted(*unknown) + " (see --help)"));
    }
    return report(io,
                  Error(ErrorCode::kInvalidArgument, std::string(error.what()) + " (see --help)"));
  }
  const auto grace_s = parse_duration(line.grace);
  if (!grace_s) {
    return report(io, Error(ErrorCode::kInvalidArgument,
                            "--grace: " + varve::quoted(line.grace) +
                                " is not a duration from 0 to 36500d, such as 15m"));
  }
  line.gc.grace_s = *grace_s;
  const Status status = line.run(io);
  return status ? 0 : report(io, status.error());
}

}  // namespace varve::layer_pack
