#pragma once

#include <sys/ioctl.h>
#include <termios.h>

#include <optional>
#include <string>

#include "base/error.h"
#include "base/unique_fd.h"

namespace varve::launcher {

/// Raw mode of a terminal for as long as the object lives; every way out of the program that runs
/// destructors restores it. Move-only.
class RawMode {
 public:
  /// Nothing is changed when `fd` is no terminal.
  static RawMode enter(int fd);
  RawMode(RawMode&& other) noexcept;
  RawMode& operator=(RawMode&&) = delete;
  ~RawMode();

 private:
  RawMode() = default;
  int fd_ = -1;
  termios saved_{};
};

/// The size of the terminal at `fd`; 80 × 24 when it has none.
winsize window_of(int fd);

/// Copies between a caller's standard streams and the master of a pseudo-terminal: what cannot be
/// written at once waits in a bounded buffer and stops the reading side. Loop-local, non-blocking.
class TerminalRelay {
 public:
  /// @param master  Taken over; made non-blocking.
  static Result<TerminalRelay> create(UniqueFd master, int input, int output);

  /// Which events to wait for, in poll(2)'s terms; -1 for a side that has ended.
  int master_fd() const { return master_.get(); }
  short master_events() const;
  int input_fd() const;

  /// After poll: moves what can be moved.
  void on_master(short events);
  void on_input();
  /// Passes the caller's window size on.
  void resize();
  /// Reads and writes out what the sandbox wrote before it ended.
  void drain();

 private:
  TerminalRelay(UniqueFd master, int input, int output)
      : master_(std::move(master)), input_(input), output_(output) {}
  void write_output(const char* data, size_t size);

  UniqueFd master_;
  int input_;
  int output_;
  std::string pending_;  // From the input, not yet taken by the master.
};

}  // namespace varve::launcher
