#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "base/error.h"
#include "base/unique_fd.h"
#include "fs/log.h"
#include "fs/mounter/message.h"

namespace varve::fs {

struct MounterOptions {
  std::string mountpoint;  ///< Of the FUSE filesystem.
  /// An existing directory; the helper's private root is mounted over it in its own namespace.
  std::string scratch_directory;
  /// Makes loop devices even where the kernel mounts files: for tests.
  bool loop_only = false;
  /// Keeps mounts in the helper's namespace even where detached ones can be cloned: for tests.
  bool attached_only = false;
};

/// Makes kernel EROFS mounts of the images that the FUSE mount shows, one a key, shared by all who
/// ask for it.
///
/// A helper process makes them. It is a process and not a thread because opening an image waits for
/// an answer of this very daemon: were it killed while a thread of its own waits for itself, the
/// descriptor of /dev/fuse would stay open in that thread and nothing would ever end the wait.
/// The mounts are kept detached in this process, which clones them without asking anybody; before
/// Linux 6.15, which cannot do that, they are attached in the helper's private mount namespace and
/// cloned there. The host's mount table stays clean either way.
/// Thread-safe: one request at a time.
class Mounter {
 public:
  /// Starts the helper: it is forked, not executed. Best while the process has one thread and
  /// little memory; one that was killed is replaced later all the same.
  static Result<std::unique_ptr<Mounter>> start(const MounterOptions& options, LogSink log);
  /// Ends the helper; mounts that others cloned stay.
  ~Mounter();
  Mounter(const Mounter&) = delete;
  Mounter& operator=(const Mounter&) = delete;

  /// True where the kernel mounts no files: a loop device stands between each mount and its image.
  bool uses_loop_devices() const { return uses_loop_devices_; }

  /// A detached clone (open_tree) of the EROFS mount of `<key>/image.erofs`, which is made first
  /// when there is none. `key` is "<domain>/<layer id>".
  /// Errors: kUnsupported (neither file-backed mounts nor loop devices), kTimedOut, what mount
  /// said.
  Result<UniqueFd> mount(const std::string& key);
  /// The same without waiting for the helper or for another request; empty where that cannot be.
  UniqueFd mount_at_once(const std::string& key);
  /// Unmounts the shared mount of `key`; one that does not exist is no error.
  Status drop(const std::string& key);

 private:
  Mounter(const MounterOptions& options, LogSink log) : options_(options), log_(std::move(log)) {}

  // With mutex_ held, or before anybody else knows of this.
  Status start_helper();
  void end_helper();
  Result<mounter::Message> request(char operation, const std::string& key, UniqueFd fd);
  Result<mounter::Message> exchange(mounter::Message& message);

  const MounterOptions options_;
  const LogSink log_;
  std::mutex mutex_;
  std::map<std::string, UniqueFd> originals_;  // By key; empty where the helper keeps them.
  UniqueFd socket_;
  pid_t helper_ = 0;
  uint32_t next_sequence_ = 1;
  bool uses_loop_devices_ = false;
};

}  // namespace varve::fs
