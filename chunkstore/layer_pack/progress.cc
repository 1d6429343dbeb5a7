#include "chunkstore/layer_pack/progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "base/bytes.h"
#include "base/clock.h"

namespace varve::layer_pack {
namespace {

constexpr auto kBarInterval = std::chrono::milliseconds(200);
constexpr auto kLineInterval = std::chrono::seconds(10);
constexpr size_t kBarWidth = 30;

}  // namespace

Progress::Progress(const ToolIo& io, std::string what)
    : io_(io), what_(std::move(what)), start_ns_(monotonic_ns()), thread_([this] { run(); }) {}

Progress::~Progress() {
  {
    const std::lock_guard lock(mutex_);
    is_stopped_ = true;
  }
  stop_changed_.notify_all();
  thread_.join();
  if (is_bar_shown_) {
    std::fputs("\r\033[K", io_.err);
    std::fflush(io_.err);
  }
}

void Progress::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    const bool is_done =
        io_.err_is_terminal
            ? stop_changed_.wait_for(lock, kBarInterval, [this] { return is_stopped_; })
            : stop_changed_.wait_for(lock, kLineInterval, [this] { return is_stopped_; });
    if (is_done) return;
    is_bar_shown_ = io_.err_is_terminal;
    const std::string text = line();
    std::fputs((io_.err_is_terminal ? "\r\033[K" + text : text + "\n").c_str(), io_.err);
    std::fflush(io_.err);
  }
}

std::string Progress::line() const {
  const uint64_t bytes = bytes_;
  const uint64_t expected = std::max(expected_bytes_.load(), bytes);
  const double seconds = static_cast<double>(monotonic_ns() - start_ns_) / 1e9;
  std::string text = what_ + " ";
  if (io_.err_is_terminal && expected > 0) {
    const auto filled =
        static_cast<size_t>(static_cast<double>(bytes) / static_cast<double>(expected) * kBarWidth);
    text += "[" + std::string(filled, '#') + std::string(kBarWidth - filled, ' ') + "] ";
  }
  if (entry_count_ > 0) text += fmt::format("{} entries, ", entry_count_.load());
  text += human_bytes(bytes);
  if (expected > bytes) text += " of " + human_bytes(expected);
  return text + ", " + human_bytes(static_cast<uint64_t>(static_cast<double>(bytes) / seconds)) +
         "/s";
}

}  // namespace varve::layer_pack
