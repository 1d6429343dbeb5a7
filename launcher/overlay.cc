#include "launcher/overlay.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/fsuid.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <linux/securebits.h>

#include <cerrno>
#include <utility>

#include "base/file_io.h"

namespace varve::launcher {
namespace {

/// Acts on files as another user, with all capabilities: the overlay's mounter must be mapped by
/// the id-mapped upper directory, or the kernel makes the overlay read-only. Restores on leaving.
class ActAs {
 public:
  static Result<ActAs> enter(std::optional<uint32_t> host_id) {
    if (!host_id) return ActAs(false);
    // Without this, leaving fsuid 0 would drop the capabilities that mounting needs.
    if (::prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP, 0, 0, 0) != 0) {
      return fail_errno("keeping capabilities");
    }
    ::setfsuid(*host_id);
    ::setfsgid(*host_id);
    return ActAs(true);
  }
  ActAs(ActAs&& other) noexcept : active_(std::exchange(other.active_, false)) {}
  ActAs& operator=(ActAs&&) = delete;
  ~ActAs() {
    if (!active_) return;
    ::setfsuid(0);
    ::setfsgid(0);
  }

 private:
  explicit ActAs(bool active) : active_(active) {}
  bool active_;
};

/// A copy of the mount namespace for a moment. What is attached in it goes with it.
class ScratchNamespace {
 public:
  static Result<ScratchNamespace> enter() {
    ScratchNamespace scratch;
    VARVE_ASSIGN(scratch.outer_, open_file("/proc/self/ns/mnt", O_RDONLY));
    VARVE_ASSIGN(scratch.root_, open_file("/", O_PATH | O_DIRECTORY));
    VARVE_ASSIGN(scratch.directory_, open_file(".", O_PATH | O_DIRECTORY));
    scratch.is_inside_ = true;
    VARVE_TRY(unshare_mounts());
    return scratch;
  }
  ScratchNamespace(ScratchNamespace&& other) noexcept
      : outer_(std::move(other.outer_)),
        root_(std::move(other.root_)),
        directory_(std::move(other.directory_)),
        is_inside_(std::exchange(other.is_inside_, false)) {}
  ScratchNamespace& operator=(ScratchNamespace&&) = delete;
  ~ScratchNamespace() { (void)leave(); }

  /// Idempotent.
  Status leave() {
    if (!std::exchange(is_inside_, false)) return {};
    // setns takes the namespace's own root, which need not be the caller's.
    if (::setns(outer_.get(), CLONE_NEWNS) != 0 || ::fchdir(root_.get()) != 0 ||
        ::chroot(".") != 0 || ::fchdir(directory_.get()) != 0) {
      return fail_errno("going back to the mount namespace");
    }
    return {};
  }

 private:
  ScratchNamespace() = default;
  UniqueFd outer_;
  UniqueFd root_;
  UniqueFd directory_;
  bool is_inside_ = false;
};

// Names below the scratch directory: as short as can be, for all options share one page.
constexpr char kUpperName[] = "u";
constexpr char kMergedName[] = "m";

Status attach_at(int mount, const std::string& name) {
  if (::mkdir(name.c_str(), 0700) != 0) return fail_errno("creating " + quoted(name));
  return move_mount_to(mount, AT_FDCWD, name);
}

/// Attaches the layers below the working directory and returns the text of the mount options.
Result<std::string> attach_layers(const OverlayLayers& layers) {
  std::string text = "lowerdir=";
  for (size_t i = layers.lowers.size(); i-- > 0;) {
    const std::string name = std::to_string(i);
    VARVE_TRY(attach_at(layers.lowers[i].get(), name));
    text += name + (i == 0 ? "" : ":");
  }
  if (layers.upper >= 0) {
    VARVE_TRY(attach_at(layers.upper, kUpperName));
    text += std::string(",upperdir=") + kUpperName + "/upper,workdir=" + kUpperName + "/work";
  }
  for (const auto& [name, value] : layers.options) {
    text += "," + name + (value.empty() ? "" : "=" + value);
  }
  return text;
}

/// mount(2), because fsconfig(2) takes no string of more than 255 bytes.
Result<UniqueFd> mount_attached(const OverlayLayers& layers) {
  VARVE_ASSIGN(const UniqueFd scratch,
               new_mount("tmpfs", {{"mode", "0700"}, {"size", "64k"}}, MOUNT_ATTR_NOSUID));
  VARVE_TRY(move_mount_to(scratch.get(), AT_FDCWD, "/"));
  if (::fchdir(scratch.get()) != 0) return fail_errno("entering a directory");
  VARVE_ASSIGN(const std::string options, attach_layers(layers));
  if (::mkdir(kMergedName, 0700) != 0) return fail_errno("creating a directory");
  {
    VARVE_ASSIGN(const ActAs guard, ActAs::enter(layers.mounter_id));
    if (::mount("overlay", kMergedName, "overlay", 0, options.c_str()) != 0) {
      return fail_errno("creating it with options " + quoted(options));
    }
  }
  VARVE_ASSIGN(UniqueFd merged, clone_mount(AT_FDCWD, kMergedName));
  mount_attr attributes{};
  attributes.attr_set = layers.attributes;
  VARVE_TRY(set_mount_attributes(merged.get(), attributes));
  return merged;
}

Result<UniqueFd> mount_by_paths(const OverlayLayers& layers) {
  VARVE_ASSIGN(ScratchNamespace scratch, ScratchNamespace::enter());
  auto merged = mount_attached(layers);
  VARVE_TRY(scratch.leave());
  return merged;
}

/// The kernel does not take the option in this form. EOPNOTSUPP: the filesystem has no part in the
/// mount API (before 6.5); EBADF: it takes no descriptor that only names a place (before 6.13).
bool is_unknown_form(int error) {
  return error == EINVAL || error == EOPNOTSUPP || error == EBADF;
}

/// Names the layers by descriptor, the topmost lower first. False where the kernel takes none:
/// lowerdir+ takes descriptors from 6.13 on.
Result<bool> set_layers(int context, const OverlayLayers& layers) {
  for (auto lower = layers.lowers.rbegin(); lower != layers.lowers.rend(); ++lower) {
    if (::fsconfig(context, FSCONFIG_SET_FD, "lowerdir+", nullptr, lower->get()) == 0) continue;
    if (is_unknown_form(errno)) return false;
    return fail_errno("adding a layer");
  }
  if (layers.upper < 0) return true;
  for (const auto& [option, name] :
       {std::pair{"upperdir", "upper"}, std::pair{"workdir", "work"}}) {
    VARVE_ASSIGN(const UniqueFd directory, open_file_at(layers.upper, name, O_PATH | O_DIRECTORY));
    if (::fsconfig(context, FSCONFIG_SET_FD, option, nullptr, directory.get()) == 0) continue;
    if (is_unknown_form(errno)) return false;
    return fail_errno(std::string("setting ") + option);
  }
  return true;
}

}  // namespace

Result<UniqueFd> mount_overlay(const OverlayLayers& layers) {
  const UniqueFd context(::fsopen("overlay", FSOPEN_CLOEXEC));
  if (!context) return fail_errno("opening filesystem type 'overlay'");
  VARVE_ASSIGN(const bool by_descriptor, set_layers(context.get(), layers));
  if (!by_descriptor) return mount_by_paths(layers);
  VARVE_TRY(set_mount_options(context.get(), layers.options));
  auto merged = [&]() -> Result<UniqueFd> {
    VARVE_ASSIGN(const ActAs guard, ActAs::enter(layers.mounter_id));
    return create_mount(context.get(), layers.attributes);
  }();
  if (merged || merged.error().errno_value() != EINVAL) return merged;
  // It may have refused layers that are not attached; if not, its first words are the better ones.
  auto by_paths = mount_by_paths(layers);
  return by_paths ? std::move(by_paths) : std::move(merged);
}

}  // namespace varve::launcher
