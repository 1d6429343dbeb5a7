#pragma once

#include <map>
#include <mutex>
#include <string>

#include "base/error.h"
#include "base/unique_fd.h"

namespace varve::fs {

/// Mount namespaces that clients left here, kept by a descriptor each until the daemon ends. Where
/// they are stands in `DIRECTORY/<name>`, a symlink to that descriptor in /proc: whoever is
/// connected to this process can open it without asking. Thread-safe.
class KeptNamespaces {
 public:
  /// Each version of a client needs one.
  static constexpr size_t kCountMax = 16;

  /// What an earlier daemon recorded in `directory` goes. The caller holds the lock that makes it
  /// ours.
  static Result<KeptNamespaces> create(const std::string& directory);
  KeptNamespaces(KeptNamespaces&& other) noexcept;
  KeptNamespaces& operator=(KeptNamespaces&&) = delete;
  ~KeptNamespaces();

  /// Keeps the mount namespace of the process `pid`. Of those left under one name the first one
  /// stays: its record may be in use.
  /// Errors: kInvalidArgument when `name` is no file name, kBusy when too many are kept.
  Status keep(const std::string& name, pid_t pid);

 private:
  explicit KeptNamespaces(std::string directory) : directory_(std::move(directory)) {}

  std::string directory_;  // "" when moved from.
  std::mutex mutex_;
  std::map<std::string, UniqueFd> namespaces_;  // By name.
};

}  // namespace varve::fs
