#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace varve::launcher {

enum class NetworkMode { kNone, kHost };

/// What `varve run` was asked for: parsed, and possibly still wrong (see validate()).
struct Spec {
  bool help = false;  ///< Print help; nothing else is set for sure.
  std::string image;
  std::vector<std::string> command;  ///< Empty: the image's own.
  std::string store;                 ///< URL; empty: the default store.
  std::vector<std::string> extra_layers;
  std::optional<uint64_t> memory_bytes_max;
  std::optional<uint32_t> cpu_milli_max;
  uint32_t pids_max = 4096;
  std::vector<std::string> env;  ///< "K=V"
  std::string workdir;
  std::string user;
  std::optional<std::string> entrypoint;  ///< Replaces the image's; "" removes it.
  NetworkMode network = NetworkMode::kNone;
  std::optional<uint64_t> rw_bytes_max;  ///< Upper directory on a tmpfs of that size.
  bool keep = false;
  bool terminal = false;
  bool allow_sudo = false;
  bool print_plan = false;
  std::string stats_path;
  std::string domain = "default";
  std::string run_dir = "/run/varve";
  std::string state_dir = "/var/lib/varve/sandboxes";
};

/// Checks everything that can be checked without touching the system, and that parse_run() did not.
/// Errors: kInvalidArgument, naming the option.
Status validate(const Spec& spec);

/// What `varve run` and `varve mount` have in common. Errors: as validate().
Status validate_layers(const std::vector<std::string>& extra_layers, const std::string& domain,
                       const std::string& run_dir);

/// "2", "0.5": thousandths of a CPU.
std::optional<uint32_t> parse_cpus(std::string_view text);
/// (uid_t)-1 and (gid_t)-1, which system calls take for "none".
inline constexpr uint32_t kNoId = UINT32_MAX;
/// A decimal number without sign, spaces or leading zeros beyond "0".
std::optional<uint32_t> parse_u32(std::string_view text);

}  // namespace varve::launcher
