#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "chunkstore/source/entry.h"
#include "chunkstore/source/link_table.h"
#include "chunkstore/source/path_stack.h"

namespace varve::chunkstore {

/// An entry as a walker found it. Value type.
struct WalkedEntry {
  Entry entry;
  LinkTable::Inode inode;  ///< Of a file with several names; number 0 = it has one.
};

/// Directories that wait to be listed, threads that list them, and the bounded queue of what they
/// found. One consumer; the destructor stops the walk and joins.
class WalkQueue {
 public:
  using Batch = std::vector<WalkedEntry>;
  /// Lists one directory, calling push_directory() and put(). Runs on several threads.
  using Lister = std::function<Status(const std::string& directory, WalkQueue& queue)>;

  /// Entries that wait for the consumer, above which listers wait, too.
  static constexpr size_t kFoundCountMax = 8192;

  /// @param temp_directory  For directories that wait, when there are very many.
  WalkQueue(Lister lister, std::string temp_directory)
      : lister_(std::move(lister)), directories_(std::move(temp_directory)) {}
  ~WalkQueue();
  WalkQueue(const WalkQueue&) = delete;
  WalkQueue& operator=(const WalkQueue&) = delete;

  /// Begins with the root ("") on `thread_count` threads.
  void start(size_t thread_count);

  /// For listers. Newest first is what is listed next, so that few wait.
  /// Errors: of the temporary file.
  Status push_directory(std::string directory);
  /// For listers. Waits while the consumer is behind; false when the walk is over (an error).
  bool put(Batch batch);

  /// All that was found since; nothing when everything has been listed. The first error of a
  /// lister.
  Result<std::optional<Batch>> take();

 private:
  void run();

  const Lister lister_;
  std::mutex mutex_;
  std::condition_variable work_changed_;
  std::condition_variable found_changed_;
  std::condition_variable space_changed_;
  PathStack directories_;
  Batch found_;
  size_t busy_count_ = 0;
  bool is_stopped_ = false;
  std::optional<Error> error_;
  std::vector<std::thread> threads_;
};

}  // namespace varve::chunkstore
