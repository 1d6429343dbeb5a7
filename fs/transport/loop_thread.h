#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <thread>

namespace varve::fs {

/// A thread that may sit in a blocking read(2) and can be made to leave it: stop() sends it a
/// signal with an empty handler until it is gone. The signal is SIGUSR2, process-wide.
class LoopThread {
 public:
  /// Runs `body`, which returns soon after stopping() became true or its system call failed with
  /// EINTR.
  LoopThread(std::string name, std::function<void(const LoopThread&)> body);
  ~LoopThread();
  LoopThread(const LoopThread&) = delete;
  LoopThread& operator=(const LoopThread&) = delete;

  bool stopping() const { return stopping_.load(std::memory_order_acquire); }
  /// Waits until the body returned. Idempotent; never from the thread itself.
  void stop();

 private:
  std::atomic<bool> stopping_{false};
  std::atomic<bool> finished_{false};
  std::thread thread_;
};

/// Binds the calling thread to `cpu`; false when that CPU is not online for it.
bool pin_to_cpu(int cpu);

}  // namespace varve::fs
