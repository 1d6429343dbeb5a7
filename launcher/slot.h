#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/unique_fd.h"
#include "qos/cgroup.h"

namespace varve::launcher {

/// A sandbox's place in the node's pool: its id range, the names of its cgroups, and the record of
/// what has to go when its owner dies. One directory `RUN_DIR/sandboxes/<number>`, made by whoever
/// takes the slot and locked (flock) as long as that process lives; `upper` in it is a symlink to
/// the directory with the sandbox's written files. Move-only.
class Slot {
 public:
  Slot(Slot&&) noexcept = default;
  Slot& operator=(Slot&&) noexcept = default;
  ~Slot();

  uint32_t number() const { return number_; }
  /// For SandboxCgroup: unique on the node even with several run directories.
  std::string cgroup_name() const;
  /// Records that `path` has to be removed when this process does not do it.
  Status record_upper(const std::string& path);
  /// Gives the slot back; everything recorded must be gone.
  Status release();
  /// Leaves the slot to those who clean up after the dead, as something recorded could not be
  /// removed.
  void leave() { directory_.reset(); }

 private:
  friend class SlotPool;
  Slot(UniqueFd pool, UniqueFd directory, uint32_t number)
      : pool_(std::move(pool)), directory_(std::move(directory)), number_(number) {}

  UniqueFd pool_;       // RUN_DIR/sandboxes
  UniqueFd directory_;  // locked; empty after release()
  uint32_t number_ = 0;
};

/// The slots of a run directory. Move-only.
class SlotPool {
 public:
  static Result<SlotPool> open(const std::string& run_dir);

  /// False when no slot is taken, for sure: there is nothing to clean up then.
  bool may_have_slots() const;
  /// Removes what owners left that did not live to do it: processes, cgroups, files, the slot.
  /// Tries at most a bounded number of slots from a random one on, so that a node with thousands of
  /// live sandboxes pays no more than an empty one.
  /// @return why it could not be done, once for each slot: whoever comes later tries as well, but
  ///         waits for nothing and says nothing. What is left of one sandbox stops no other.
  std::vector<Error> clean_up_dead(const qos::CgroupHost& cgroups) const;
  /// Takes a free slot, and the pool with it. Errors: kUnavailable when all are taken.
  Result<Slot> claim() &&;

 private:
  SlotPool(std::string run_dir, UniqueFd directory)
      : run_dir_(std::move(run_dir)), directory_(std::move(directory)) {}

  std::string run_dir_;
  UniqueFd directory_;
};

/// The directory on disk that holds a sandbox's `upper` and `work`. Move-only; must be removed or
/// kept explicitly, the destructor removes it quietly.
class UpperDir {
 public:
  /// Makes `STATE_DIR/<name>` (mode 0700) with `upper` and `work`. What a dead owner left under
  /// that name is removed first. Errors: kUnsupported on an overlayfs, which cannot carry another
  /// one.
  static Result<UpperDir> create(const std::string& state_dir, const std::string& name);

  UpperDir(UpperDir&& other) noexcept = default;
  UpperDir& operator=(UpperDir&& other) noexcept = default;
  ~UpperDir();

  const std::string& path() const { return path_; }
  int fd() const { return directory_.get(); }
  /// Removes it if nobody wrote to it. Not an error where somebody did, or still does.
  void remove_unwritten();
  Status remove();
  void keep() { directory_.reset(); }

 private:
  UpperDir(UniqueFd parent, UniqueFd directory, std::string name, std::string path)
      : parent_(std::move(parent)),
        directory_(std::move(directory)),
        name_(std::move(name)),
        path_(std::move(path)) {}

  UniqueFd parent_;
  UniqueFd directory_;
  std::string name_;
  std::string path_;
};

/// Makes `upper` and `work` below an open directory.
Status make_upper_and_work(int directory);
/// Gives the `upper` below an open directory the mode, owner and time of the image's root, which
/// the merged root shows.
Status copy_root_attributes(int directory, const struct stat& image_root);

}  // namespace varve::launcher
