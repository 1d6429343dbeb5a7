#include "fs/fetch/pending_reads.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <charconv>
#include <string>
#include <vector>

#include "base/file_io.h"

namespace varve::fs {
namespace {

constexpr size_t kEarlyInterruptCountMax = 1024;
// How late a deadline or a kill may be noticed.
constexpr std::chrono::milliseconds kDeadlinePeriod(100);
constexpr std::chrono::milliseconds kInterruptPeriod(10);
// A read is late when this part of its time is over.
constexpr int kLateShare = 4;

// The hexadecimal mask after `field` of a /proc status text.
uint64_t signal_mask(std::string_view status, std::string_view field) {
  const size_t start = status.find(field);
  if (start == std::string_view::npos) return 0;
  const std::string_view digits = status.substr(start + field.size(), 16);
  uint64_t mask = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), mask, 16);
  return mask;
}

}  // namespace

bool is_being_killed(uint32_t pid) {
  if (pid == 0) return true;
  const auto status = read_file("/proc/" + std::to_string(pid) + "/status", 64 << 10);
  if (!status) return true;
  const std::string_view text = as_text(*status);
  const uint64_t pending = signal_mask(text, "\nSigPnd:\t") | signal_mask(text, "\nShdPnd:\t");
  return (pending >> (SIGKILL - 1) & 1) != 0;
}

PendingReads::PendingReads(IsBeingKilled is_being_killed, Late late)
    : is_being_killed_(std::move(is_being_killed)),
      late_(std::move(late)),
      thread_([this] { run(); }) {}

PendingReads::~PendingReads() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void PendingReads::add(std::shared_ptr<ReadOperation> read) {
  std::lock_guard lock(mutex_);
  if (abort_errno_ != 0) {
    try_answer(*read, abort_errno_);
    return;
  }
  const uint64_t unique = read->unique;
  Entry entry{std::move(read), MonotonicClock::now(), early_interrupts_.erase(unique) != 0};
  if (entry.is_interrupted) ++interrupted_count_;
  const bool wakes_thread = entries_.empty() || entry.is_interrupted;
  entries_.emplace(unique, std::move(entry));
  if (wakes_thread) changed_.notify_all();
}

void PendingReads::remove(uint64_t unique) {
  std::lock_guard lock(mutex_);
  const auto found = entries_.find(unique);
  if (found == entries_.end()) return;
  if (found->second.is_interrupted) --interrupted_count_;
  entries_.erase(found);
}

void PendingReads::finish(ReadOperation& read) {
  remove(read.unique);
  read.take_request().reply(read.size);
}

void PendingReads::finish_with_error(ReadOperation& read, int errno_value) {
  remove(read.unique);
  read.take_request().reply_error(errno_value);
}

void PendingReads::interrupt(uint64_t unique) {
  std::lock_guard lock(mutex_);
  const auto found = entries_.find(unique);
  if (found == entries_.end()) {
    if (!early_interrupts_.insert(unique).second) return;
    early_interrupt_order_.push_back(unique);
    if (early_interrupt_order_.size() > kEarlyInterruptCountMax) {
      early_interrupts_.erase(early_interrupt_order_.front());
      early_interrupt_order_.pop_front();
    }
    return;
  }
  if (!found->second.is_interrupted) {
    found->second.is_interrupted = true;
    ++interrupted_count_;
    changed_.notify_all();
  }
}

void PendingReads::abort_all(int errno_value) {
  std::lock_guard lock(mutex_);
  abort_errno_ = errno_value;
  for (auto& [unique, entry] : entries_) try_answer(*entry.read, errno_value);
  entries_.clear();
  interrupted_count_ = 0;
}

size_t PendingReads::count() const {
  std::lock_guard lock(mutex_);
  return entries_.size();
}

uint64_t PendingReads::oldest_age_ms() const {
  std::lock_guard lock(mutex_);
  if (entries_.empty()) return 0;
  auto oldest = MonotonicClock::time_point::max();
  for (const auto& [unique, entry] : entries_) oldest = std::min(oldest, entry.added);
  return static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::milliseconds>(MonotonicClock::now() - oldest)
          .count());
}

bool PendingReads::try_answer(ReadOperation& read, int errno_value) {
  if (!read.claim()) return false;
  read.take_request().reply_error(errno_value);
  return true;
}

void PendingReads::answer_due() {
  struct Interrupted {
    uint64_t unique;
    uint32_t pid;
  };
  std::vector<Interrupted> interrupted;
  std::vector<std::shared_ptr<ReadOperation>> late;
  {
    std::lock_guard lock(mutex_);
    const auto now = MonotonicClock::now();
    for (auto it = entries_.begin(); it != entries_.end();) {
      Entry& entry = it->second;
      if (entry.read->deadline <= now && try_answer(*entry.read, EIO)) {
        if (entry.is_interrupted) --interrupted_count_;
        it = entries_.erase(it);
        continue;
      }
      if (entry.is_interrupted) interrupted.push_back({entry.read->unique, entry.read->pid});
      if (late_ && !entry.is_late &&
          now - entry.added >= (entry.read->deadline - entry.added) / kLateShare) {
        entry.is_late = true;
        late.push_back(entry.read);
      }
      ++it;
    }
  }
  for (const auto& read : late) late_(read);
  for (const Interrupted& one : interrupted) {
    if (!is_being_killed_(one.pid)) continue;
    std::lock_guard lock(mutex_);
    const auto found = entries_.find(one.unique);
    if (found == entries_.end() || !try_answer(*found->second.read, EINTR)) continue;
    --interrupted_count_;
    entries_.erase(found);
  }
}

void PendingReads::run() {
  pthread_setname_np(pthread_self(), "read-deadlines");
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    if (entries_.empty()) {
      changed_.wait(lock);
    } else if (interrupted_count_ > 0) {
      changed_.wait_for(lock, kInterruptPeriod);
    } else {
      changed_.wait_for(lock, kDeadlinePeriod);
    }
    lock.unlock();
    answer_due();
    lock.lock();
  }
}

}  // namespace varve::fs
