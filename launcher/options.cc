#include "launcher/options.h"

#include <cstdlib>

#include "base/bytes.h"
#include "base/quantity.h"

namespace varve::launcher {
namespace {

constexpr OptionRow kRunOptions[] = {
    {"--store", "URL", "store that holds the image (default $VARVE_STORE, else the local store)"},
    {"--layer", "ID", "one more layer on top of the image's; may be repeated"},
    {"--memory", "SIZE", "memory limit, e.g. 512M (1M to 16383T)"},
    {"--cpus", "N", "CPU limit, e.g. 0.5 (0.01 to 1000000)"},
    {"--pids", "N", "limit of processes and threads (2 to 4194304, default 4096)"},
    {"--env", "NAME=VALUE", "environment variable; NAME alone takes the caller's value"},
    {"--workdir", "DIR", "working directory"},
    {"--user", "USER[:GROUP]", "user of the command, by name or number"},
    {"--entrypoint", "PROGRAM", "replaces the image's entrypoint; '' removes it"},
    {"--net", "none|host", "network: only loopback (default), or the host's"},
    {"--rw-size", "SIZE", "keep written files in memory, at most SIZE (64k to 16383T)"},
    {"--keep", nullptr, "keep the written files after the end and say where"},
    {"-i", nullptr, "accepted for habit's sake: standard input is always passed"},
    {"-t", nullptr, "run the command on a terminal of its own"},
    {"-it", nullptr, "both (also -ti)"},
    {"--allow-sudo", nullptr, "let set-user-id programs work inside"},
    {"--stats", "FILE", "write figures of the run to FILE as JSON"},
    {"--print-plan", nullptr, "print what would be set up as JSON, and run nothing"},
    {"--domain", "NAME", "trust domain whose sandboxes share page cache (default 'default')"},
    {"--run-dir", "DIR", "sockets and locks (default /run/varve)"},
    {"--state-dir", "DIR", "written files of sandboxes (default /var/lib/varve/sandboxes)"},
    {"--help", nullptr, "print this (also -h)"},
};

constexpr OptionRow kMountOptions[] = {
    {"--store", "URL", "store that holds the image (default $VARVE_STORE, else the local store)"},
    {"--layer", "ID", "one more layer on top of the image's; may be repeated"},
    {"--domain", "NAME", "trust domain (default 'default')"},
    {"--run-dir", "DIR", "sockets and locks (default /run/varve)"},
    {"--help", nullptr, "print this (also -h)"},
};

tl::unexpected<Error> wrong(std::string message) {
  return fail(ErrorCode::kInvalidArgument, std::move(message));
}

/// Walks over options: splits "--name=value", finds the row, fetches the value.
class OptionReader {
 public:
  OptionReader(std::span<const OptionRow> rows, const std::vector<std::string>& args)
      : rows_(rows), args_(args) {}

  enum class Word { kOption, kOperand, kEnd };

  /// kOption: an option was read into name() and value(). kOperand: take_operand() has the next
  /// word. kEnd: "--" or the end was met, rest() has what follows.
  Result<Word> next() {
    if (at_ == args_.size()) return Word::kEnd;
    const std::string& word = args_[at_];
    if (word == "--") {
      ++at_;
      return Word::kEnd;
    }
    if (word.size() < 2 || word[0] != '-') return Word::kOperand;
    ++at_;
    const size_t equals = word.starts_with("--") ? word.find('=') : std::string::npos;
    name_ = word.substr(0, equals);
    if (name_ == "-ti") name_ = "-it";
    if (name_ == "-h") name_ = "--help";
    for (const OptionRow& row : rows_) {
      if (name_ != row.name) continue;
      if (row.placeholder == nullptr) {
        if (equals != std::string::npos) return wrong("option " + name_ + " takes no value");
        return Word::kOption;
      }
      if (equals != std::string::npos) {
        value_ = word.substr(equals + 1);
      } else if (at_ < args_.size()) {
        value_ = args_[at_++];
      } else {
        return wrong("option " + name_ + " needs a value (" + row.placeholder + ")");
      }
      return Word::kOption;
    }
    return wrong("unknown option " + quoted(name_) + "; see varve --help");
  }

  std::string take_operand() { return args_[at_++]; }
  const std::string& name() const { return name_; }
  const std::string& value() const { return value_; }
  std::vector<std::string> rest() const {
    return {args_.begin() + static_cast<long>(at_), args_.end()};
  }

 private:
  std::span<const OptionRow> rows_;
  const std::vector<std::string>& args_;
  size_t at_ = 0;
  std::string name_;
  std::string value_;
};

// Below this the kernel kills the first process of the sandbox before it can say anything.
constexpr uint64_t kMemoryBytesMin = uint64_t{1} << 20;
constexpr uint64_t kRwBytesMin = uint64_t{64} << 10;
constexpr uint64_t kSizeBytesMax = uint64_t{16383} << 40;  // parse_bytes() ends just above.
constexpr uint32_t kCpuMilliMin = 10;
constexpr uint32_t kCpuMilliMax = 1'000'000'000;
constexpr uint32_t kPidsMin = 2;        // PID 1 and the command.
constexpr uint32_t kPidsMax = 4 << 20;  // The kernel's own.

template <class T>
bool is_within(const std::optional<T>& value, T min, T max) {
  return value && *value >= min && *value <= max;
}

std::string default_store() {
  const char* store = std::getenv("VARVE_STORE");
  return store != nullptr && *store != '\0' ? store : "file:///var/lib/varve/store";
}

Status set_limit(Spec& spec, const std::string& name, const std::string& value) {
  const auto refuse = [&](const char* range) {
    return wrong(name + ": " + quoted(value) + " is not " + range);
  };
  if (name == "--memory") {
    spec.memory_bytes_max = parse_bytes(value);
    if (!is_within(spec.memory_bytes_max, kMemoryBytesMin, kSizeBytesMax)) {
      return refuse("a size from 1M to 16383T, such as 512M");
    }
  } else if (name == "--rw-size") {
    spec.rw_bytes_max = parse_bytes(value);
    if (!is_within(spec.rw_bytes_max, kRwBytesMin, kSizeBytesMax)) {
      return refuse("a size from 64k to 16383T, such as 512M");
    }
  } else if (name == "--cpus") {
    spec.cpu_milli_max = parse_cpus(value);
    if (!is_within(spec.cpu_milli_max, kCpuMilliMin, kCpuMilliMax)) {
      return refuse("a number of CPUs from 0.01 to 1000000, such as 0.5");
    }
  } else {
    const auto pids = parse_u32(value);
    if (!is_within(pids, kPidsMin, kPidsMax)) return refuse("a number from 2 to 4194304");
    spec.pids_max = *pids;
  }
  return {};
}

Status set_run_option(Spec& spec, const std::string& name, const std::string& value) {
  if (name == "--memory" || name == "--rw-size" || name == "--cpus" || name == "--pids") {
    return set_limit(spec, name, value);
  }
  if (name == "--store") spec.store = value;
  if (name == "--layer") spec.extra_layers.push_back(value);
  if (name == "--workdir") spec.workdir = value;
  if (name == "--user") spec.user = value;
  if (name == "--entrypoint") spec.entrypoint = value;
  if (name == "--keep") spec.keep = true;
  if (name == "-t" || name == "-it") spec.terminal = true;
  if (name == "--allow-sudo") spec.allow_sudo = true;
  if (name == "--print-plan") spec.print_plan = true;
  if (name == "--stats") spec.stats_path = value;
  if (name == "--domain") spec.domain = value;
  if (name == "--run-dir") spec.run_dir = value;
  if (name == "--state-dir") spec.state_dir = value;
  if (name == "--net") {
    if (value != "none" && value != "host")
      return wrong("--net: " + quoted(value) + " is neither none nor host");
    spec.network = value == "host" ? NetworkMode::kHost : NetworkMode::kNone;
  }
  if (name == "--stats" && value.empty()) return wrong("--stats must not be empty");
  if (name == "--env") {
    if (value.empty()) return wrong("--env must not be empty");
    if (value.find('=') != std::string::npos) {
      spec.env.push_back(value);
    } else if (const char* inherited = std::getenv(value.c_str()); inherited != nullptr) {
      spec.env.push_back(value + "=" + inherited);
    }
  }
  return {};
}

std::string table(std::span<const OptionRow> rows) {
  std::string text;
  for (const OptionRow& row : rows) {
    std::string left = std::string("  ") + row.name;
    if (row.placeholder != nullptr) left += std::string(" ") + row.placeholder;
    if (left.size() < 24) left.resize(24, ' ');
    text += left + " " + row.help + "\n";
  }
  return text;
}

}  // namespace

std::span<const OptionRow> run_options() {
  return kRunOptions;
}
std::span<const OptionRow> mount_options() {
  return kMountOptions;
}

Result<Spec> parse_run(const std::vector<std::string>& args) {
  Spec spec;
  spec.store = default_store();
  OptionReader reader(kRunOptions, args);
  for (;;) {
    VARVE_ASSIGN(const OptionReader::Word word, reader.next());
    if (word == OptionReader::Word::kOption) {
      spec.help = reader.name() == "--help";
      if (spec.help) return spec;
      VARVE_TRY(set_run_option(spec, reader.name(), reader.value()));
    } else if (word == OptionReader::Word::kOperand && spec.image.empty()) {
      spec.image = reader.take_operand();
      if (spec.image.empty()) return wrong("IMAGE must not be empty");
    } else {
      break;
    }
  }
  spec.command = reader.rest();
  if (spec.image.empty() && !spec.command.empty()) {
    spec.image = spec.command.front();
    spec.command.erase(spec.command.begin());
  }
  if (spec.image.empty()) return wrong("no image given; see varve --help");
  if (spec.store.empty()) return wrong("--store must not be empty");
  return spec;
}

Result<MountSpec> parse_mount(const std::vector<std::string>& args, bool with_image) {
  MountSpec spec;
  spec.store = default_store();
  OptionReader reader(kMountOptions, args);
  std::vector<std::string> operands;
  for (;;) {
    VARVE_ASSIGN(const OptionReader::Word word, reader.next());
    if (word == OptionReader::Word::kEnd) break;
    if (word == OptionReader::Word::kOperand) {
      operands.push_back(reader.take_operand());
      continue;
    }
    spec.help = reader.name() == "--help";
    if (spec.help) return spec;
    if (reader.name() == "--store") spec.store = reader.value();
    if (reader.name() == "--layer") spec.extra_layers.push_back(reader.value());
    if (reader.name() == "--domain") spec.domain = reader.value();
    if (reader.name() == "--run-dir") spec.run_dir = reader.value();
  }
  for (std::string& word : reader.rest()) operands.push_back(std::move(word));
  if (operands.size() != (with_image ? 2u : 1u)) {
    return wrong(with_image ? "usage: varve mount [OPTION...] IMAGE DIR"
                            : "usage: varve umount [OPTION...] DIR");
  }
  spec.directory = operands.back();
  if (with_image) spec.image = operands[0];
  if (spec.store.empty()) return wrong("--store must not be empty");
  VARVE_TRY(validate_layers(spec.extra_layers, spec.domain, spec.run_dir));
  return spec;
}

std::string usage() {
  return "usage: varve run [OPTION...] IMAGE [OPTION...] [--] [COMMAND [ARGUMENT...]]\n"
         "       varve mount [OPTION...] IMAGE DIR\n"
         "       varve umount [OPTION...] DIR\n"
         "       varve --version | --help\n\n"
         "Options of run:\n" +
         table(kRunOptions) + "\nOptions of mount and umount:\n" + table(kMountOptions) +
         "\nvarve run ends with the command's own status, 128+N when signal N killed it, 125 when\n"
         "varve itself failed, 126 when the command cannot be executed, 127 when it is not "
         "found.\n";
}

}  // namespace varve::launcher
