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
  /// @param output  Opened anew where it is a terminal or a pipe: its flags are shared with others,
  ///                and a write to it must not block.
  static Result<TerminalRelay> create(UniqueFd master, int input, int output);

  /// Which events to wait for, in poll(2)'s terms; -1 for a side that has ended or has to wait.
  int master_fd() const { return master_.get(); }
  short master_events() const;
  int input_fd() const;
  int output_fd() const { return to_output_.empty() ? -1 : output(); }

  /// After poll: moves what can be moved.
  void on_master(short events);
  void on_input();
  void on_output();
  /// Passes the caller's window size on.
  void resize();
  /// Whether anything that the sandbox wrote may still be on its way.
  bool has_output() const { return master_ || !to_output_.empty(); }

 private:
  TerminalRelay(UniqueFd master, int input, int output)
      : master_(std::move(master)), input_(input), output_(output) {}
  int output() const { return own_output_ ? own_output_.get() : output_; }

  UniqueFd master_;
  int input_;
  int output_;
  UniqueFd own_output_;
  std::string to_output_;
  std::string pending_;  // From the input, not yet taken by the master.
};

}  // namespace varve::launcher
