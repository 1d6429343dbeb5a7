#include "launcher/plan.h"

#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>

#include "guard/capabilities.h"
#include "guard/masks.h"
#include "guard/seccomp_policy.h"

namespace varve::launcher {
namespace {

constexpr char kDefaultPath[] = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

// clone3 makes what only it can make, or what the host's side needs at once. The child makes the
// others while the host's side makes the v1 groups and mounts the overlay: a network namespace
// alone takes half a millisecond. The cgroup namespace has to wait until the child sits in its
// groups.
constexpr uint64_t kClonedNamespaces = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID;
constexpr uint64_t kUnsharedNamespaces = CLONE_NEWUTS | CLONE_NEWIPC;
constexpr uint64_t kQuietMount = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC;

/// The value of `name` in "K=V" strings, or nullptr; the last one counts.
const char* find_variable(const std::vector<std::string>& env, std::string_view name) {
  const char* value = nullptr;
  for (const std::string& variable : env) {
    if (variable.starts_with(name) && variable.size() > name.size() &&
        variable[name.size()] == '=') {
      value = variable.c_str() + name.size() + 1;
    }
  }
  return value;
}

/// Sets or replaces: one entry a name, in the order of first appearance.
void put_variable(std::vector<std::string>& env, const std::string& variable) {
  const std::string_view name(variable.data(), variable.find('=') + 1);
  for (std::string& existing : env) {
    if (existing.starts_with(name)) {
      existing = variable;
      return;
    }
  }
  env.push_back(variable);
}

std::vector<std::string> command_candidates(const std::string& program, const char* path) {
  if (program.find('/') != std::string::npos) return {program};
  std::vector<std::string> candidates;
  std::string_view rest = path;
  for (;;) {
    const size_t colon = rest.find(':');
    const std::string_view directory = rest.substr(0, colon);
    // An empty element would mean the working directory: nobody wants that of a sandbox.
    if (!directory.empty()) candidates.push_back(std::string(directory) + "/" + program);
    if (colon == std::string_view::npos) return candidates;
    rest.remove_prefix(colon + 1);
  }
}

Result<Process> build_process(const Spec& spec, const ImageConfig& config,
                              const std::string& hostname) {
  Process process;
  if (spec.entrypoint) {
    if (!spec.entrypoint->empty()) process.argv.push_back(*spec.entrypoint);
  } else {
    process.argv = config.entrypoint;
  }
  const auto& rest = spec.command.empty() && !spec.entrypoint ? config.command : spec.command;
  process.argv.insert(process.argv.end(), rest.begin(), rest.end());
  if (process.argv.empty() || process.argv[0].empty()) {
    return fail(ErrorCode::kInvalidArgument, "no command given, and the image names none");
  }
  for (const std::string& variable : config.env) {
    if (variable.find('=') != std::string::npos) put_variable(process.env, variable);
  }
  put_variable(process.env, "HOSTNAME=" + hostname);
  if (spec.terminal) put_variable(process.env, "TERM=xterm");
  for (const std::string& variable : spec.env) put_variable(process.env, variable);
  if (find_variable(process.env, "PATH") == nullptr) {
    put_variable(process.env, std::string("PATH=") + kDefaultPath);
  }
  process.set_home = find_variable(process.env, "HOME") == nullptr;
  process.user = spec.user.empty() ? config.user : spec.user;
  process.workdir = spec.workdir.empty() ? config.workdir : spec.workdir;
  if (process.workdir.empty()) process.workdir = "/";
  process.terminal = spec.terminal;
  process.candidates = command_candidates(process.argv[0], find_variable(process.env, "PATH"));
  return process;
}

void begin_host_operations(const Spec& spec, const std::string& upper_path,
                           std::vector<Operation>& out) {
  Operation upper{.kind = OpKind::kOpenUpper, .path = upper_path};
  if (spec.rw_bytes_max) {
    upper.path.clear();
    upper.options = {{"size", std::to_string(*spec.rw_bytes_max)}, {"mode", "0700"}};
  }
  out.push_back(std::move(upper));
  // What comes from the host is cloned while the host's mounts can still be seen.
  if (spec.network == NetworkMode::kHost) {
    out.push_back(
        {.kind = OpKind::kCloneHostFile, .target = Register::kEtc, .path = "/etc/resolv.conf"});
  }
  out.push_back({.kind = OpKind::kEnterEmptyNamespace});
  out.push_back({.kind = OpKind::kClone, .value = kClonedNamespaces});
  out.push_back({.kind = OpKind::kCoreLimit, .value = guard::kCoreLimitBytes});
}

void finish_host_operations(const Spec& spec, const ImageInfo& image, std::vector<Operation>& out) {
  out.push_back({.kind = OpKind::kWriteIdMaps});
  for (size_t i = 0; i < image.layers.size(); ++i) {
    out.push_back({.kind = OpKind::kIdmapLower, .value = i, .path = image.layers[i].id});
  }
  out.push_back({.kind = OpKind::kIdmapUpper, .value = spec.keep ? 1U : 0U});
  Operation overlay{.kind = OpKind::kMountOverlay,
                    .target = Register::kRoot,
                    .options = {{"xino", "on"}, {"metacopy", "off"}, {"redirect_dir", "nofollow"}}};
  if (!spec.keep) overlay.options.push_back({"volatile", ""});
  out.push_back(std::move(overlay));
  Operation dev{.kind = OpKind::kMakeDev, .target = Register::kDev, .options = {{"mode", "0755"}}};
  // For /dev/shm. Charged to the sandbox's memory group in any case; without a limit the kernel's
  // half of memory.
  if (spec.memory_bytes_max) {
    dev.options.push_back({"size", std::to_string(*spec.memory_bytes_max / 2)});
  }
  out.push_back(std::move(dev));
}

void add_mounts_in_child(const Spec& spec, std::vector<Operation>& out) {
  out.push_back({.kind = OpKind::kNewFilesystem,
                 .target = Register::kProc,
                 .value = kQuietMount,
                 .path = "proc"});
  // Before the root is there: in the empty one a mask is a single call.
  out.push_back({.kind = OpKind::kStageProc});
  for (const guard::ProcMask& mask : guard::proc_masks()) {
    out.push_back({.kind = mask.is_directory ? OpKind::kMaskDirectory : OpKind::kMaskFile,
                   .path = mask.path});
  }
  out.push_back({.kind = OpKind::kReadOnly, .path = "sys"});
  out.push_back({.kind = OpKind::kNewFilesystem,
                 .target = Register::kPts,
                 .value = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC,
                 .path = "devpts",
                 .options = {{"gid", "5"}, {"mode", "620"}, {"ptmxmode", "666"}}});
  out.push_back({.kind = OpKind::kReceiveMounts});
  out.push_back({.kind = OpKind::kHostname});
  out.push_back({.kind = OpKind::kSwitchRoot, .target = Register::kRoot});
  out.push_back({.kind = OpKind::kAttach, .target = Register::kProc, .path = "proc"});
  out.push_back({.kind = OpKind::kAttachSys, .path = "sys"});
  out.push_back({.kind = OpKind::kAttach, .target = Register::kDev, .path = "dev"});
  out.push_back({.kind = OpKind::kAttach, .target = Register::kPts, .path = "dev/pts"});
  out.push_back({.kind = OpKind::kAttachShm, .value = kQuietMount, .path = "shm"});
  if (spec.network == NetworkMode::kHost) {
    out.push_back(
        {.kind = OpKind::kAttachFile, .target = Register::kEtc, .path = "etc/resolv.conf"});
  }
}

void add_child_operations(const Spec& spec, std::vector<Operation>& out) {
  const uint64_t network = spec.network == NetworkMode::kNone ? uint64_t{CLONE_NEWNET} : 0;
  out.push_back({.kind = OpKind::kNamespaces, .value = kUnsharedNamespaces | network});
  out.push_back({.kind = OpKind::kWaitForIdMaps});
  out.push_back({.kind = OpKind::kJoinCgroup});
  out.push_back({.kind = OpKind::kNamespaces, .value = CLONE_NEWCGROUP});
  out.push_back({.kind = OpKind::kBecomeRoot});
  if (spec.network == NetworkMode::kNone) out.push_back({.kind = OpKind::kLoopbackUp});
  add_mounts_in_child(spec, out);
  out.push_back({.kind = OpKind::kWorkdir});
  if (spec.terminal) out.push_back({.kind = OpKind::kTerminal});
  for (const int limit : {RLIMIT_NICE, RLIMIT_RTPRIO}) {
    out.push_back({.kind = OpKind::kLimit, .value = static_cast<uint64_t>(limit)});
  }
  // The filter needs CAP_SYS_ADMIN where no_new_privs is off, so it goes before the capabilities.
  if (!spec.allow_sudo) out.push_back({.kind = OpKind::kNoNewPrivileges});
  out.push_back({.kind = OpKind::kSeccomp});
  out.push_back({.kind = OpKind::kCapabilities, .value = guard::kSandboxCapabilities});
}

}  // namespace

Plan begin_plan(const Spec& spec, const std::string& upper_path) {
  Plan plan;
  // Room for all: what a list leaves behind when it grows stays in the arena (arena_new.cc).
  plan.host_operations.reserve(16);
  plan.child_operations.reserve(64);
  begin_host_operations(spec, upper_path, plan.host_operations);
  add_child_operations(spec, plan.child_operations);
  return plan;
}

Status finish_plan(Plan& plan, const Spec& spec, const ImageInfo& image, uint32_t slot) {
  if (image.layers.empty()) return fail(ErrorCode::kInvalidArgument, "the image has no layers");
  plan.hostname = image.id.substr(0, 12);
  if (plan.hostname.empty()) plan.hostname = "sandbox";
  std::vector<uint32_t> large_ids = image.large_ids;
  VARVE_ASSIGN(plan.process, build_process(spec, image.config, plan.hostname));
  // A numeric user that no file has still needs a place in the map.
  const size_t colon = plan.process.user.find(':');
  for (const std::string& part :
       {plan.process.user.substr(0, colon),
        colon == std::string::npos ? std::string() : plan.process.user.substr(colon + 1)}) {
    if (const auto id = parse_u32(part); id && *id >= kIdsPerSlot) large_ids.push_back(*id);
  }
  VARVE_ASSIGN(plan.id_map, make_id_map(slot, std::move(large_ids)));
  finish_host_operations(spec, image, plan.host_operations);
  for (Operation& operation : plan.child_operations) {
    if (operation.kind == OpKind::kHostname) operation.path = plan.hostname;
    if (operation.kind == OpKind::kWorkdir) operation.path = plan.process.workdir;
  }
  return {};
}

}  // namespace varve::launcher
