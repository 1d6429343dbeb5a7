#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "launcher/id_map.h"
#include "launcher/image_info.h"
#include "launcher/spec.h"

namespace varve::launcher {

/// Descriptors that operations make and use; each process keeps its own table of them.
enum class Register : uint8_t { kNone, kRoot, kDev, kProc, kPts, kEtc, kCount };

/// One set-up operation. The host-side ones run in `varve run` itself; the others run in the child,
/// inside all the sandbox's namespaces, with raw system calls only.
enum class OpKind : uint8_t {
  // On the host's side.
  kOpenUpper,            ///< `path`, or a tmpfs with `options`.
  kCloneHostFile,        ///< A read-only clone of the host's `path`; into `target`.
  kEnterEmptyNamespace,  ///< A private mount namespace: an empty tmpfs with proc and sysfs.
  kClone,                ///< The child, in `value` = CLONE_* namespaces.
  kCoreLimit,            ///< The child's RLIMIT_CORE to `value`.
  kWriteIdMaps,
  kIdmapLower,    ///< `value` = index of the layer, lowest first.
  kIdmapUpper,    ///< `value` = 1: fails where files on disk could not have the image's own ids.
  kMountOverlay,  ///< `options`; into kRoot.
  kMakeDev,       ///< A tmpfs with the device nodes; into kDev.
  // In the child.
  kNamespaces,     ///< `value` = CLONE_* namespaces that kClone left out.
  kWaitForIdMaps,  ///< And for the v1 groups.
  kJoinCgroup,
  kBecomeRoot,
  kHostname,  ///< `path`
  kLoopbackUp,
  kNewFilesystem,  ///< Type `path` with `options` and mount attributes `value`; into `target`.
  kStageProc,      ///< kProc over the empty root's /proc, where it is masked.
  kMaskFile,       ///< An empty file over `path` below the staged /proc, if the kernel has it.
  kMaskDirectory,
  kReadOnly,  ///< `path` below kProc becomes read-only.
  kReceiveMounts,
  kSwitchRoot,
  kAttach,      ///< `target` at `path` inside the root, which is made if the image lacks it.
  kAttachFile,  ///< `target` over the file `path`; passed over where the image has no /etc.
  kAttachShm,   ///< `path` of /dev as a mount of its own, with mount attributes `value`.
  kAttachSys,   ///< The allow list of sysfs at `path`.
  kWorkdir,     ///< Enters `path`; made if the image lacks it.
  kTerminal,    ///< A pseudo-terminal of the sandbox's own; the master goes to the parent.
  kLimit,       ///< RLIMIT `value` to zero.
  kNoNewPrivileges,
  kSeccomp,
  kCapabilities,  ///< Keeps the mask `value`.
};

struct Operation {
  OpKind kind;
  Register target = Register::kNone;
  uint64_t value = 0;
  std::string path;
  std::vector<std::pair<std::string, std::string>> options;
};

/// What runs at the end of the set-up.
struct Process {
  std::vector<std::string> argv;
  std::vector<std::string> env;
  std::vector<std::string> candidates;  ///< Paths tried in turn.
  std::string user;                     ///< "", or as given: looked up inside the image.
  bool set_home = false;                ///< HOME is not in env: take it from the user's entry.
  std::string workdir;
  bool terminal = false;
};

/// All that a launch does, as data: no descriptor, no pointer, the same for the same input.
struct Plan {
  std::string hostname;
  std::vector<IdExtent> id_map;
  // In order; the two sides run them in parallel.
  std::vector<Operation> host_operations;
  std::vector<Operation> child_operations;
  Process process;
};

std::string_view op_kind_name(OpKind kind);
/// For error messages: "mounting the overlay".
std::string describe(const Operation& operation);

/// What can be said before the image is known: the child's operations (without the host name and
/// the working directory, which only finish_plan() knows) and the host's up to kClone.
///
/// @param upper_path The directory that holds `upper` and `work`; unused with --rw-size.
Plan begin_plan(const Spec& spec, const std::string& upper_path);
/// Adds the rest.
///
/// @param slot  Which id range (see id_map.h).
/// Errors: kInvalidArgument (nothing to run), kUnsupported (ids without a place).
Status finish_plan(Plan& plan, const Spec& spec, const ImageInfo& image, uint32_t slot);

/// One JSON document, an operation a line.
std::string plan_to_json(const Plan& plan);

}  // namespace varve::launcher
