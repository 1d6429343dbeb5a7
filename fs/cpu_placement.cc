#include "fs/cpu_placement.h"

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <charconv>
#include <string>
#include <string_view>

namespace varve::fs {
namespace {

// The field of /proc/<pid>/stat that holds the CPU (proc(5)), counted from the one behind the name.
constexpr int kFieldsBeforeCpu = 36;
constexpr size_t kStatBytesMax = 1024;

// Goes to one of `to` and is allowed all of `allowed` again.
bool move(const cpu_set_t& to, const cpu_set_t& allowed) {
  if (sched_setaffinity(0, sizeof(to), &to) != 0) return false;
  sched_setaffinity(0, sizeof(allowed), &allowed);
  return true;
}

}  // namespace

bool move_to_cpu(int cpu) {
  cpu_set_t allowed;
  // Fails on machines with more CPUs than a cpu_set_t holds: threads stay where they are.
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return false;
  if (cpu < 0 || !CPU_ISSET(static_cast<size_t>(cpu), &allowed)) return false;
  cpu_set_t to;
  CPU_ZERO(&to);
  CPU_SET(static_cast<size_t>(cpu), &to);
  return move(to, allowed);
}

bool leave_cpu(int cpu) {
  if (sched_getcpu() != cpu) return true;
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return false;
  cpu_set_t to = allowed;
  CPU_CLR(static_cast<size_t>(cpu), &to);
  return CPU_COUNT(&to) > 0 && move(to, allowed);
}

bool allow_cpus_of_process() {
  cpu_set_t allowed;
  // The process's id is that of its first thread.
  return sched_getaffinity(getpid(), sizeof(allowed), &allowed) == 0 &&
         sched_setaffinity(0, sizeof(allowed), &allowed) == 0;
}

// In its own task directory: the other file adds up all threads of the process.
ThreadWatch::ThreadWatch(uint32_t thread_id) {
  const std::string id = std::to_string(thread_id);
  stat_.reset(open(("/proc/" + id + "/task/" + id + "/stat").c_str(), O_RDONLY | O_CLOEXEC));
}

std::optional<int> ThreadWatch::cpu() const {
  if (!stat_) return std::nullopt;
  char buffer[kStatBytesMax];
  const ssize_t size = pread(stat_.get(), buffer, sizeof(buffer), 0);
  if (size <= 0) return std::nullopt;
  std::string_view rest(buffer, static_cast<size_t>(size));
  // The name stands in parentheses and may hold any of them, and spaces.
  size_t at = rest.rfind(')');
  for (int i = 0; at != std::string_view::npos && i <= kFieldsBeforeCpu; ++i) {
    at = rest.find(' ', at + 1);
  }
  if (at == std::string_view::npos) return std::nullopt;
  int cpu;
  const auto parsed = std::from_chars(rest.data() + at + 1, rest.data() + rest.size(), cpu);
  if (parsed.ec != std::errc()) return std::nullopt;
  return cpu;
}

}  // namespace varve::fs
