#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "chunkstore/store/file_ops.h"

namespace varve::test {

/// Plays a machine that stops before its `step`-th change of the disk: from there on every change
/// fails, and lose_unsynced() takes back what no fsync had made safe (file contents, names,
/// directories), newest first. A store opened afterwards with the real operations sees what a
/// reboot would show. Thread-safe.
class CrashFileOps : public chunkstore::FileOps {
 public:
  /// @param step  1 = before the first change; 0 = never.
  /// @param errno_value  What the change that is cut fails with; ENOSPC plays a full disk: then
  /// only
  ///                     creating and writing fail, and removing goes on working.
  explicit CrashFileOps(int root_fd, uint64_t step, int errno_value = 5);

  uint64_t step_count() const;
  bool crashed() const;
  void lose_unsynced();

  Result<UniqueFd> create_file(int root_fd, const std::string& path) override;
  Status write(int fd, ByteView bytes) override;
  Status sync_file(int fd, const std::string& path) override;
  Result<bool> make_dir(int root_fd, const std::string& path) override;
  Result<bool> rename_if_absent(int root_fd, const std::string& from,
                                const std::string& to) override;
  Status rename_over(int root_fd, const std::string& from, const std::string& to) override;
  Status remove_file(int root_fd, const std::string& path) override;
  Result<bool> remove_dir(int root_fd, const std::string& path) override;
  Status sync_dir(int root_fd, const std::string& path) override;

 private:
  struct Pending {
    std::string dir;  // the directory whose fsync makes the change safe
    std::function<void()> undo;
  };
  Status step(bool adds_data, std::string_view what);
  void remember(const std::string& path, std::function<void()> undo);
  std::optional<Bytes> content_of(const std::string& path) const;
  void restore(const std::string& path, const std::optional<Bytes>& content);

  const int root_fd_;
  const uint64_t crash_step_;
  const int errno_value_;
  mutable std::mutex mutex_;
  uint64_t step_count_ = 0;
  bool crashed_ = false;
  std::vector<Pending> pending_;
  std::map<int, std::string> open_paths_;
  std::set<std::string> unsynced_;  // files whose contents were not synced, by their present name
};

}  // namespace varve::test
