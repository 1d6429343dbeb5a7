#include "launcher/mount_command.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdlib>

#include "base/file_io.h"
#include "launcher/control_client.h"
#include "launcher/json_text.h"
#include "launcher/mount_api.h"
#include "launcher/options.h"
#include "launcher/varvefs_starter.h"

namespace varve::launcher {
namespace {

constexpr size_t kLeaseBytesMax = 4096;

Result<std::string> real_path(const std::string& path) {
  char buffer[PATH_MAX];
  if (::realpath(path.c_str(), buffer) == nullptr) return fail_errno("resolving " + quoted(path));
  return std::string(buffer);
}

/// The file that records the lease of the mount at `directory`: '/' becomes '-', as systemd does
/// it, and '-' and '\' are written as hexadecimal escapes.
std::string record_path(const std::string& run_dir, const std::string& directory) {
  std::string name;
  for (const char c : directory.substr(1)) {
    if (c == '/') {
      name += '-';
    } else if (c == '-' || c == '\\') {
      name += c == '-' ? "\\x2d" : "\\x5c";
    } else {
      name += c;
    }
  }
  return run_dir + "/mounts/" + name;
}

/// One layer is itself; several are a read-only overlay, the highest on top.
Result<UniqueFd> combine(std::vector<UniqueFd> layers) {
  if (layers.size() == 1) return std::move(layers[0]);
  const UniqueFd context(::fsopen("overlay", FSOPEN_CLOEXEC));
  if (!context) return fail_errno("opening filesystem type 'overlay'");
  for (auto layer = layers.rbegin(); layer != layers.rend(); ++layer) {
    if (::fsconfig(context.get(), FSCONFIG_SET_FD, "lowerdir+", nullptr, layer->get()) == 0)
      continue;
    const std::string path = "/proc/self/fd/" + std::to_string(layer->get());
    if (::fsconfig(context.get(), FSCONFIG_SET_STRING, "lowerdir+", path.c_str(), 0) != 0) {
      return fail_errno("adding a layer");
    }
  }
  return create_mount(context.get(), MOUNT_ATTR_RDONLY);
}

Status detach(const std::string& run_dir, const std::string& lease) {
  VARVE_ASSIGN(ControlClient client, connect_or_start_varvefs(run_dir));
  VARVE_TRY(client.send("POST", "/v1/detach", detach_json(lease)));
  auto response = client.receive();
  // A varvefs that was restarted has forgotten the lease: what was asked for is so.
  if (response || response.error().code() == ErrorCode::kNotFound) return {};
  return tl::unexpected<Error>(std::move(response).error());
}

}  // namespace

Status mount_image(const std::vector<std::string>& args) {
  VARVE_ASSIGN(const MountSpec spec, parse_mount(args, true));
  VARVE_ASSIGN(const std::string directory, real_path(spec.directory));
  const std::string record = record_path(spec.run_dir, directory);
  if (::access(record.c_str(), F_OK) == 0) {
    return fail(ErrorCode::kAlreadyExists,
                "an image is mounted at " + quoted(directory) + " already");
  }
  VARVE_ASSIGN(ControlClient client, connect_or_start_varvefs(spec.run_dir));
  VARVE_TRY(client.send("POST", "/v1/attach",
                        to_json({.store = spec.store,
                                 .image = spec.image,
                                 .layers = spec.extra_layers,
                                 .domain = spec.domain,
                                 .mounts = true,
                                 .keep = true})));
  VARVE_ASSIGN(ControlClient::Response response, client.receive());
  VARVE_ASSIGN(ImageInfo image, parse_image_info(response.body));
  const auto mount = [&]() -> Status {
    if (response.fds.empty() || response.fds.size() != image.layers.size()) {
      return fail(ErrorCode::kCorruption, "varvefs gave no mount for a layer");
    }
    drop_repeated_layers(image.layers, response.fds);
    VARVE_ASSIGN(const UniqueFd tree, combine(std::move(response.fds)));
    VARVE_TRY(make_directories(spec.run_dir + "/mounts", 0700));
    VARVE_TRY(write_file_atomic(record, as_bytes(image.lease), 0600));
    return move_mount_to(tree.get(), AT_FDCWD, directory);
  };
  auto status = mount();
  if (status) return status;
  ::unlink(record.c_str());
  (void)detach(spec.run_dir, image.lease);
  return fail(std::move(status).error(),
              "mounting " + quoted(spec.image) + " at " + quoted(directory));
}

Status unmount_image(const std::vector<std::string>& args) {
  VARVE_ASSIGN(const MountSpec spec, parse_mount(args, false));
  VARVE_ASSIGN(const std::string directory, real_path(spec.directory));
  const std::string record = record_path(spec.run_dir, directory);
  auto lease = read_file(record, kLeaseBytesMax);
  if (!lease) {
    return fail(ErrorCode::kNotFound,
                "no image was mounted at " + quoted(directory) + " by varve mount");
  }
  // EINVAL: somebody has unmounted it without us; the attach is still to be given back.
  if (::umount2(directory.c_str(), UMOUNT_NOFOLLOW) != 0 && errno != EINVAL) {
    return fail_errno("unmounting " + quoted(directory));
  }
  VARVE_TRY(detach(spec.run_dir, std::string(as_text(*lease))));
  if (::unlink(record.c_str()) != 0) return fail_errno("removing " + quoted(record));
  return {};
}

}  // namespace varve::launcher
