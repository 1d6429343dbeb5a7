#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>

#include "base/tool_io.h"

namespace varve::layer_pack {

/// Shows how far long work is: a bar that is redrawn on a terminal, a plain line now and then
/// elsewhere; nothing when the work is done sooner. The counters may be changed from any thread.
class Progress {
 public:
  /// @param what  "packing", "exporting".
  Progress(const ToolIo& io, std::string what);
  /// Takes the bar away.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void add_entries(uint64_t count) { entry_count_ += count; }
  void add_bytes(uint64_t bytes) { bytes_ += bytes; }
  /// What bytes will have come to in the end; unknown until then.
  void add_expected_bytes(uint64_t bytes) { expected_bytes_ += bytes; }

 private:
  void run();
  std::string line() const;

  const ToolIo io_;
  const std::string what_;
  const uint64_t start_ns_;
  std::atomic<uint64_t> entry_count_{0};
  std::atomic<uint64_t> bytes_{0};
  std::atomic<uint64_t> expected_bytes_{0};
  std::mutex mutex_;
  std::condition_variable stop_changed_;
  bool is_stopped_ = false;
  bool is_bar_shown_ = false;
  std::thread thread_;
};

}  // namespace varve::layer_pack
