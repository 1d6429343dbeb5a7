#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/tool_io.h"
#include "chunkstore/format/chunk.h"

/// The subcommands of layer-pack(1): what the command line said, and what carries it out.
namespace varve::layer_pack {

/// What every subcommand takes.
struct CommonOptions {
  std::string store;     ///< URL.
  bool is_json = false;  ///< One JSON value on standard output, for programs.
};

/// How chunks are made and stored.
struct PackOptions {
  int level = chunkstore::kCompressionLevelDefault;
  uint32_t job_count = 0;            ///< Threads that hash and compress; 0 = one a CPU.
  uint64_t memory_max = 512u << 20;  ///< Bytes.
  std::string temp_directory;        ///< "" = $TMPDIR or /var/tmp.
};

enum class SourceType { kAuto, kDirectory, kTar, kOciLayout, kDockerArchive };

struct BuildOptions : CommonOptions {
  PackOptions pack;
  std::string source;
  SourceType source_type = SourceType::kAuto;
  std::string platform;
  std::string reference;
  std::string base;
  std::string tag;
  std::vector<std::string> env;
};
Status run_build(const BuildOptions& options, const ToolIo& io);

struct DiffOptions : CommonOptions {
  PackOptions pack;
  std::string directory;
  bool has_user_marks = false;
  std::string base;
  std::string tag;
};
Status run_diff(const DiffOptions& options, const ToolIo& io);

struct ComposeOptions : CommonOptions {
  std::string tag;
  std::vector<std::string> parts;
};
Status run_compose(const ComposeOptions& options, const ToolIo& io);

struct FlattenOptions : CommonOptions {
  PackOptions pack;
  std::string image;
  std::string tag;
};
Status run_flatten(const FlattenOptions& options, const ToolIo& io);

struct ListOptions : CommonOptions {
  std::string image;  ///< "" = list the images of the store.
  std::string path;
};
Status run_ls(const ListOptions& options, const ToolIo& io);
Status run_tree(const ListOptions& options, const ToolIo& io);

struct InspectOptions : CommonOptions {
  std::string image;
};
Status run_inspect(const InspectOptions& options, const ToolIo& io);

struct CatOptions : CommonOptions {
  std::string image;
  std::string path;
};
Status run_cat(const CatOptions& options, const ToolIo& io);

struct ExportOptions : CommonOptions {
  PackOptions pack;
  std::string image;
  std::string erofs_file;  ///< One of the two.
  std::string tar_file;
};
Status run_export(const ExportOptions& options, const ToolIo& io);

struct RmOptions : CommonOptions {
  std::vector<std::string> names;  ///< At least one.
};
Status run_rm(const RmOptions& options, const ToolIo& io);

struct VerifyOptions : CommonOptions {};
Status run_verify(const VerifyOptions& options, const ToolIo& io);

struct StatsOptions : CommonOptions {};
Status run_stats(const StatsOptions& options, const ToolIo& io);

struct GcOptions : CommonOptions {
  int64_t grace_s = 0;
  bool is_dry_run = false;
};
Status run_gc(const GcOptions& options, const ToolIo& io);

}  // namespace varve::layer_pack
