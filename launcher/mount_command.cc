#include "launcher/mount_command.h"

#include <fcntl.h>
#include <libgen.h>
#include <linux/openat2.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdlib>
#include <optional>

#include "base/file_io.h"
#include "base/mount_api.h"
#include "launcher/control_client.h"
#include "launcher/json_text.h"
#include "launcher/overlay.h"
#include "launcher/varvefs_starter.h"

namespace varve::launcher {
namespace {

__extension__ using Hash128 = unsigned __int128;

constexpr size_t kRecordBytesMax = 2 * PATH_MAX;

Result<std::string> real_path(const std::string& path) {
  char buffer[PATH_MAX];
  if (::realpath(path.c_str(), buffer) == nullptr) return fail_errno("resolving " + quoted(path));
  return std::string(buffer);
}

/// The same for a directory that may have been removed.
Result<std::string> real_path_of_parent(const std::string& path) {
  std::string for_parent = path;  // Both functions may write to what they get.
  std::string for_name = path;
  VARVE_ASSIGN(const std::string parent, real_path(::dirname(for_parent.data())));
  return (parent == "/" ? "" : parent) + "/" + ::basename(for_name.data());
}

/// The file that records the mount at `directory`. A path may be longer than a file name, so its
/// hash (FNV-1a, 128 bits) is the name.
std::string record_path(const std::string& run_dir, const std::string& directory) {
  constexpr Hash128 kPrime = (Hash128{1} << 88) + 0x13b;
  constexpr Hash128 kBasis = (Hash128{0x6c62272e07bb0142} << 64) + 0x62b821756295c58d;
  Hash128 hash = kBasis;
  for (const char c : directory) hash = (hash ^ static_cast<uint8_t>(c)) * kPrime;
  std::string name;
  for (int shift = 124; shift >= 0; shift -= 4) {
    name += "0123456789abcdef"[static_cast<unsigned>(hash >> shift) & 15];
  }
  return run_dir + "/mounts/" + name;
}

/// One layer is itself; several are a read-only overlay, the highest on top. The host does not take
/// an image's word for who may do what: no set-user-id, no devices.
Result<UniqueFd> combine(std::vector<UniqueFd> layers) {
  constexpr uint64_t kAttributes = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV;
  if (layers.size() > 1) {
    return mount_overlay({.lowers = layers, .options = {}, .attributes = kAttributes});
  }
  mount_attr attributes{};
  attributes.attr_set = kAttributes;
  VARVE_TRY(set_mount_attributes(layers[0].get(), attributes));
  return std::move(layers[0]);
}

Status detach(const std::string& run_dir, const std::string& lease) {
  auto client = connect_to_varvefs(run_dir);
  // A varvefs that has gone, or was restarted, has forgotten the lease: what was asked for is so.
  if (!client && client.error().code() == ErrorCode::kUnavailable) return {};
  if (!client) return tl::unexpected<Error>(std::move(client).error());
  VARVE_TRY(client->send("POST", "/v1/detach", detach_json(lease)));
  auto response = client->receive();
  if (response || response.error().code() == ErrorCode::kNotFound) return {};
  return tl::unexpected<Error>(std::move(response).error());
}

/// What tells a mount from the next one at the same place: its id that is never given again
/// (Linux 6.8), or else its filesystem.
Result<std::string> mount_identity(int directory, const std::string& path) {
  constexpr unsigned kMountIdUnique = 0x4000;  // STATX_MNT_ID_UNIQUE
  struct statx status {};
  const int flags = AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT | (path.empty() ? AT_EMPTY_PATH : 0);
  if (::statx(directory, path.c_str(), flags, kMountIdUnique, &status) != 0) {
    return fail_errno("inspecting a mount");
  }
  if ((status.stx_mask & kMountIdUnique) != 0) return "mount " + std::to_string(status.stx_mnt_id);
  return "filesystem " + std::to_string(status.stx_dev_major) + ":" +
         std::to_string(status.stx_dev_minor);
}

/// What is remembered of a mount: a line each, the directory last because it may hold anything.
struct Record {
  std::string lease;
  std::string identity;
  std::string directory;
};

std::string to_text(const Record& record) {
  return record.lease + "\n" + record.identity + "\n" + record.directory;
}

Result<std::optional<Record>> read_record(const std::string& path, const std::string& directory) {
  auto bytes = read_file(path, kRecordBytesMax);
  if (!bytes && bytes.error().code() == ErrorCode::kNotFound) return std::nullopt;
  if (!bytes) return tl::unexpected<Error>(std::move(bytes).error());
  std::string_view text = as_text(*bytes);
  const auto take_line = [&text] {
    const std::string line(text.substr(0, text.find('\n')));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    return line;
  };
  Record record;
  record.lease = take_line();
  record.identity = take_line();
  record.directory = std::string(text);
  if (record.directory != directory) {
    return fail(ErrorCode::kCorruption, quoted(path) + " is not the record of a mount at " +
                                            quoted(directory) + " but at " +
                                            quoted(record.directory));
  }
  return record;
}

/// Taken before a record is read that is to be written or removed: two that mount at one directory
/// would forget the one below otherwise. Nothing that waits for a store may hold it.
Result<UniqueFd> lock_records(const std::string& run_dir) {
  const std::string path = run_dir + "/mounts.lock";
  VARVE_ASSIGN(UniqueFd lock, in_context(open_file(path, O_RDWR | O_CREAT, 0600), "--run-dir"));
  while (::flock(lock.get(), LOCK_EX) != 0) {
    if (errno != EINTR) return fail_errno("locking " + quoted(path));
  }
  return lock;
}

Result<bool> is_mounted(const Record& record, const std::string& directory) {
  auto found = mount_identity(AT_FDCWD, directory);
  if (!found && found.error().errno_value() == ENOENT) return false;
  if (!found) return tl::unexpected<Error>(std::move(found).error());
  return *found == record.identity;
}

/// Gives back the attach of a mount that is gone.
Status forget(const std::string& run_dir, const std::string& path, const Record& record) {
  VARVE_TRY(detach(run_dir, record.lease));
  if (::unlink(path.c_str()) != 0) return fail_errno("removing " + quoted(path));
  return {};
}

/// With the records locked: makes sure that no image is mounted at `directory`.
Status check_free(const std::string& run_dir, const std::string& path,
                  const std::string& directory) {
  VARVE_ASSIGN(const std::optional<Record> earlier, read_record(path, directory));
  if (!earlier) return {};
  VARVE_ASSIGN(const bool is_there, is_mounted(*earlier, directory));
  if (is_there) {
    return fail(ErrorCode::kAlreadyExists,
                "an image is mounted at " + quoted(directory) + " already");
  }
  // Somebody unmounted it without us.
  return forget(run_dir, path, *earlier);
}

/// Mounts what was attached, and records it.
Status place(const MountSpec& spec, ImageInfo image, std::vector<UniqueFd> layers,
             const std::string& record, const std::string& directory) {
  if (layers.empty() || layers.size() != image.layers.size()) {
    return fail(ErrorCode::kCorruption, "varvefs gave no mount for a layer");
  }
  drop_repeated_layers(image.layers, layers);
  VARVE_TRY(drop_hidden_layers(image.layers, layers));
  VARVE_ASSIGN(const UniqueFd tree, combine(std::move(layers)));
  VARVE_ASSIGN(const std::string identity, mount_identity(tree.get(), ""));
  VARVE_ASSIGN(const UniqueFd lock, lock_records(spec.run_dir));
  VARVE_TRY(check_free(spec.run_dir, record, directory));
  VARVE_TRY(make_directories(spec.run_dir + "/mounts", 0700));
  VARVE_TRY(write_file_atomic(record, as_bytes(to_text({image.lease, identity, directory})), 0600));
  auto moved = move_mount_to(tree.get(), AT_FDCWD, directory);
  if (!moved) ::unlink(record.c_str());
  return moved;
}

}  // namespace

Status mount_image(const MountSpec& spec) {
  VARVE_ASSIGN(const std::string directory, real_path(spec.directory));
  struct stat status {};
  if (::stat(directory.c_str(), &status) != 0) return fail_errno("inspecting " + quoted(directory));
  if (!S_ISDIR(status.st_mode)) {
    return fail(ErrorCode::kInvalidArgument, quoted(directory) + " is not a directory");
  }
  VARVE_ASSIGN(ControlClient client, connect_or_start_varvefs(spec.run_dir));
  const std::string record = record_path(spec.run_dir, directory);
  {
    VARVE_ASSIGN(const UniqueFd lock, lock_records(spec.run_dir));
    VARVE_TRY(check_free(spec.run_dir, record, directory));
  }
  VARVE_TRY(client.send("POST", "/v1/attach",
                        to_json({.store = spec.store,
                                 .image = spec.image,
                                 .layers = spec.extra_layers,
                                 .domain = spec.domain,
                                 .mounts = true,
                                 .keep = true})));
  VARVE_ASSIGN(ControlClient::Response response, client.receive());
  VARVE_ASSIGN(const ImageInfo image, parse_image_info(response.body));
  auto mounted = place(spec, image, std::move(response.fds), record, directory);
  if (mounted) return mounted;
  (void)detach(spec.run_dir, image.lease);
  return fail(std::move(mounted).error(),
              "mounting " + quoted(spec.image) + " at " + quoted(directory));
}

Status unmount_image(const MountSpec& spec) {
  auto resolved = real_path(spec.directory);
  // After umount(8) and rmdir(1) there is still the attach to give back.
  if (!resolved && resolved.error().errno_value() == ENOENT) {
    resolved = real_path_of_parent(spec.directory);
  }
  if (!resolved) return tl::unexpected<Error>(std::move(resolved).error());
  const std::string& directory = *resolved;
  const std::string record = record_path(spec.run_dir, directory);
  VARVE_ASSIGN(std::optional<Record> mounted, read_record(record, directory));
  UniqueFd lock;
  if (mounted) {
    VARVE_ASSIGN(lock, lock_records(spec.run_dir));
    VARVE_ASSIGN(mounted, read_record(record, directory));
  }
  if (!mounted) {
    return fail(ErrorCode::kNotFound,
                "no image was mounted at " + quoted(directory) + " by varve mount");
  }
  // Where somebody has unmounted it without us, the attach is still to be given back.
  VARVE_ASSIGN(const bool is_there, is_mounted(*mounted, directory));
  if (is_there && ::umount2(directory.c_str(), UMOUNT_NOFOLLOW) != 0) {
    return fail_errno("unmounting " + quoted(directory));
  }
  return forget(spec.run_dir, record, *mounted);
}

}  // namespace varve::launcher
