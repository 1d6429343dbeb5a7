// The names of operations, and plans as JSON.
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>

#include <boost/json.hpp>

#include "base/bytes.h"
#include "base/check.h"
#include "launcher/plan.h"

namespace varve::launcher {
namespace {

struct OpRow {
  OpKind kind;
  const char* name;
  const char* doing;  ///< Followed by the path in error messages.
  bool in_child;
};

constexpr OpRow kOpRows[] = {
    {OpKind::kOpenUpper, "open_upper", "preparing the upper directory", false},
    {OpKind::kCloneHostFile, "clone_host_file", "lending", false},
    {OpKind::kEnterEmptyNamespace, "enter_empty_namespace", "entering an empty mount namespace",
     false},
    {OpKind::kClone, "clone", "creating the sandbox's namespaces", false},
    {OpKind::kCoreLimit, "core_limit", "limiting core files", false},
    {OpKind::kWriteIdMaps, "write_id_maps", "writing the id maps", false},
    {OpKind::kIdmapLower, "idmap_lower", "mapping the ids of layer", false},
    {OpKind::kIdmapUpper, "idmap_upper", "mapping the ids of the upper directory", false},
    {OpKind::kMountOverlay, "mount_overlay", "mounting the overlay", false},
    {OpKind::kMakeDev, "make_dev", "making /dev", false},
    {OpKind::kNamespaces, "namespaces", "making namespaces", true},
    {OpKind::kWaitForIdMaps, "wait_for_id_maps", "waiting for the id maps", true},
    {OpKind::kJoinCgroup, "join_cgroup", "joining the cgroup", true},
    {OpKind::kBecomeRoot, "become_root", "becoming the sandbox's root", true},
    {OpKind::kHostname, "hostname", "setting the host name", true},
    {OpKind::kLoopbackUp, "loopback_up", "bringing the loopback interface up", true},
    {OpKind::kNewFilesystem, "new_filesystem", "mounting a new", true},
    {OpKind::kStageProc, "stage_proc", "preparing /proc", true},
    {OpKind::kMaskFile, "mask_file", "masking /proc's", true},
    {OpKind::kMaskDirectory, "mask_directory", "masking /proc's", true},
    {OpKind::kReadOnly, "read_only", "making read-only /proc's", true},
    {OpKind::kReceiveMounts, "receive_mounts", "receiving the root filesystem", true},
    {OpKind::kSwitchRoot, "switch_root", "entering the root filesystem", true},
    {OpKind::kAttach, "attach", "mounting inside the image, at", true},
    {OpKind::kAttachFile, "attach_file", "mounting a file inside the image, at", true},
    {OpKind::kAttachShm, "attach_shm", "mounting inside /dev, at", true},
    {OpKind::kAttachSys, "attach_sys", "mounting inside the image, at", true},
    {OpKind::kWorkdir, "workdir", "entering the working directory", true},
    {OpKind::kTerminal, "terminal", "making a terminal", true},
    {OpKind::kLimit, "limit", "setting resource limits", true},
    {OpKind::kNoNewPrivileges, "no_new_privileges", "setting no_new_privs", true},
    {OpKind::kSeccomp, "seccomp", "installing the system call filter", true},
    {OpKind::kCapabilities, "capabilities", "dropping capabilities", true},
};

const OpRow& row(OpKind kind) {
  const auto index = static_cast<size_t>(kind);
  VARVE_CHECK(index < std::size(kOpRows) && kOpRows[index].kind == kind);
  return kOpRows[index];
}

struct FlagName {
  uint64_t flag;
  const char* name;
};

boost::json::array flag_names(uint64_t value, std::initializer_list<FlagName> names) {
  boost::json::array array;
  for (const FlagName& entry : names) {
    if ((value & entry.flag) != 0) array.emplace_back(entry.name);
  }
  return array;
}

/// The meaning of `value` differs from kind to kind, and so does its text.
void add_value(const Operation& operation, boost::json::object& object) {
  switch (operation.kind) {
    case OpKind::kClone:
    case OpKind::kNamespaces:
      object["namespaces"] = flag_names(operation.value, {{CLONE_NEWUSER, "user"},
                                                          {CLONE_NEWNS, "mount"},
                                                          {CLONE_NEWPID, "pid"},
                                                          {CLONE_NEWUTS, "uts"},
                                                          {CLONE_NEWIPC, "ipc"},
                                                          {CLONE_NEWNET, "net"},
                                                          {CLONE_NEWCGROUP, "cgroup"}});
      break;
    case OpKind::kCoreLimit:
      object["bytes"] = operation.value;
      break;
    case OpKind::kNewFilesystem:
    case OpKind::kAttachShm:
      object["attributes"] = flag_names(operation.value, {{MOUNT_ATTR_NOSUID, "nosuid"},
                                                          {MOUNT_ATTR_NODEV, "nodev"},
                                                          {MOUNT_ATTR_NOEXEC, "noexec"}});
      break;
    case OpKind::kIdmapLower:
      object["index"] = operation.value;
      break;
    case OpKind::kIdmapUpper:
      if (operation.value != 0) object["required"] = true;
      break;
    case OpKind::kLimit:
      object["resource"] = operation.value == RLIMIT_NICE ? "nice" : "rtprio";
      break;
    case OpKind::kCapabilities:
      object["keep"] = operation.value;
      break;
    default:
      break;
  }
}

boost::json::object to_object(const Operation& operation) {
  boost::json::object object;
  object["op"] = op_kind_name(operation.kind);
  object["where"] = row(operation.kind).in_child ? "sandbox" : "host";
  if (!operation.path.empty()) object["path"] = operation.path;
  add_value(operation, object);
  if (!operation.options.empty()) {
    boost::json::object options;
    for (const auto& [name, value] : operation.options) options[name] = value;
    object["options"] = std::move(options);
  }
  return object;
}

boost::json::array to_array(const std::vector<std::string>& words) {
  return boost::json::array(words.begin(), words.end());
}

}  // namespace

std::string_view op_kind_name(OpKind kind) {
  return row(kind).name;
}

std::string describe(const Operation& operation) {
  std::string text = row(operation.kind).doing;
  if (!operation.path.empty()) text += " " + quoted(operation.path);
  return text;
}

std::string plan_to_json(const Plan& plan) {
  std::string text = "{\n  \"hostname\": " + boost::json::serialize(plan.hostname) + ",\n";
  boost::json::array ids;
  for (const IdExtent& extent : plan.id_map) {
    ids.push_back(boost::json::array{extent.inside, extent.outside, extent.count});
  }
  text += "  \"id_map\": " + boost::json::serialize(ids) + ",\n  \"operations\": [";
  const char* separator = "\n";
  for (const auto* operations : {&plan.host_operations, &plan.child_operations}) {
    for (const Operation& operation : *operations) {
      text += separator + ("    " + boost::json::serialize(to_object(operation)));
      separator = ",\n";
    }
  }
  boost::json::object process;
  process["argv"] = to_array(plan.process.argv);
  process["env"] = to_array(plan.process.env);
  process["candidates"] = to_array(plan.process.candidates);
  process["user"] = plan.process.user;
  process["terminal"] = plan.process.terminal;
  return text + "\n  ],\n  \"process\": " + boost::json::serialize(process) + "\n}\n";
}

}  // namespace varve::launcher
