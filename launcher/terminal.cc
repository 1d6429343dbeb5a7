#include "launcher/terminal.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace varve::launcher {
namespace {

constexpr size_t kCopyBytes = 16384;
constexpr char kEndOfFile = '\x04';

/// The same terminal or pipe under flags of its own; empty for a file, which has an offset to share
/// and never blocks, and for what cannot be opened.
UniqueFd open_unblocking(int fd) {
  struct stat status;
  if (::fstat(fd, &status) != 0 || !(S_ISFIFO(status.st_mode) || ::isatty(fd) != 0)) return {};
  return UniqueFd(::open(("/proc/self/fd/" + std::to_string(fd)).c_str(),
                         O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
}

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
  TerminalRelay relay(std::move(master), input, output);
  relay.own_output_ = open_unblocking(output);
  return relay;
}

short TerminalRelay::master_events() const {
  return static_cast<short>((to_output_.empty() ? POLLIN : 0) | (pending_.empty() ? 0 : POLLOUT));
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
  if ((events & (POLLIN | POLLHUP)) == 0 || !to_output_.empty()) return;
  char buffer[kCopyBytes];
  const ssize_t n = ::read(master_.get(), buffer, sizeof buffer);
  if (n > 0) {
    to_output_.assign(buffer, static_cast<size_t>(n));
    on_output();
  } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
    // EIO: the last slave is closed.
    master_.reset();
  }
}

void TerminalRelay::on_output() {
  while (!to_output_.empty()) {
    // A socket may block all the same: it gets what fits after poll has said so.
    const size_t size = own_output_ ? to_output_.size() : std::min<size_t>(to_output_.size(), 4096);
    const ssize_t n = ::write(output(), to_output_.data(), size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return;
    // The reader has gone: output is dropped, the command goes on.
    if (n < 0) to_output_.clear();
    if (n > 0) to_output_.erase(0, static_cast<size_t>(n));
    if (!own_output_) return;
  }
}

void TerminalRelay::resize() {
  const winsize window = window_of(input_ >= 0 ? input_ : output_);
  if (master_) (void)::ioctl(master_.get(), TIOCSWINSZ, &window);
}

}  // namespace varve::launcher
