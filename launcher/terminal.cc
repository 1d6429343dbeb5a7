#include "launcher/terminal.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>

namespace varve::launcher {
namespace {

constexpr size_t kCopyBytes = 16384;
constexpr char kEndOfFile = '\x04';

}  // namespace

RawMode RawMode::enter(int fd) {
  RawMode mode;
  if (::tcgetattr(fd, &mode.saved_) != 0) return mode;
  termios raw = mode.saved_;
  ::cfmakeraw(&raw);
  if (::tcsetattr(fd, TCSANOW, &raw) == 0) mode.fd_ = fd;
  return mode;
}

RawMode::RawMode(RawMode&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), saved_(other.saved_) {}

RawMode::~RawMode() {
  if (fd_ >= 0) (void)::tcsetattr(fd_, TCSANOW, &saved_);
}

winsize window_of(int fd) {
  winsize window{};
  if (::ioctl(fd, TIOCGWINSZ, &window) != 0 || window.ws_col == 0) {
    window.ws_row = 24;
    window.ws_col = 80;
  }
  return window;
}

Result<TerminalRelay> TerminalRelay::create(UniqueFd master, int input, int output) {
  if (::fcntl(master.get(), F_SETFL, O_RDWR | O_NONBLOCK) != 0) {
    return fail_errno("preparing the terminal");
  }
  return TerminalRelay(std::move(master), input, output);
}

short TerminalRelay::master_events() const {
  return static_cast<short>(POLLIN | (pending_.empty() ? 0 : POLLOUT));
}

int TerminalRelay::input_fd() const {
  return pending_.empty() ? input_ : -1;
}

void TerminalRelay::on_input() {
  char buffer[kCopyBytes];
  const ssize_t n = ::read(input_, buffer, sizeof buffer);
  if (n < 0 && (errno == EINTR || errno == EAGAIN)) return;
  if (n > 0) {
    pending_.assign(buffer, static_cast<size_t>(n));
  } else {
    // The end of a pipe: what a person would type to say so.
    input_ = -1;
    pending_.assign(1, kEndOfFile);
  }
  on_master(POLLOUT);
}

void TerminalRelay::on_master(short events) {
  if (!master_) return;
  if ((events & POLLOUT) != 0 && !pending_.empty()) {
    const ssize_t n = ::write(master_.get(), pending_.data(), pending_.size());
    if (n > 0) pending_.erase(0, static_cast<size_t>(n));
  }
  if ((events & (POLLIN | POLLHUP)) == 0) return;
  char buffer[kCopyBytes];
  const ssize_t n = ::read(master_.get(), buffer, sizeof buffer);
  if (n > 0) {
    write_output(buffer, static_cast<size_t>(n));
  } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
    // EIO: the last slave is closed.
    master_.reset();
  }
}

/// Blocks like any program whose output is not read.
void TerminalRelay::write_output(const char* data, size_t size) {
  while (size > 0) {
    const ssize_t n = ::write(output_, data, size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) {
      pollfd wait{output_, POLLOUT, 0};
      (void)::poll(&wait, 1, -1);
      continue;
    }
    if (n < 0) return;  // The reader has gone: output is dropped, the command goes on.
    data += n;
    size -= static_cast<size_t>(n);
  }
}

void TerminalRelay::resize() {
  const winsize window = window_of(input_ >= 0 ? input_ : output_);
  if (master_) (void)::ioctl(master_.get(), TIOCSWINSZ, &window);
}

void TerminalRelay::drain() {
  char buffer[kCopyBytes];
  while (master_) {
    const ssize_t n = ::read(master_.get(), buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;
    write_output(buffer, static_cast<size_t>(n));
  }
}

}  // namespace varve::launcher
