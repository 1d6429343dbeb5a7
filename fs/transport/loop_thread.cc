#include "fs/transport/loop_thread.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include <chrono>
#include <mutex>

namespace varve::fs {
namespace {

void ignore_signal(int) {}

// Without SA_RESTART, so that a blocking read(2) returns EINTR.
void install_wake_handler() {
  static std::once_flag once;
  std::call_once(once, [] {
    struct sigaction action {};
    action.sa_handler = ignore_signal;
    sigemptyset(&action.sa_mask);
    sigaction(SIGUSR2, &action, nullptr);
  });
}

void unblock_wake_signal() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGUSR2);
  pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
}

}  // namespace

LoopThread::LoopThread(std::string name, std::function<void(const LoopThread&)> body) {
  install_wake_handler();
  thread_ = std::thread([this, name = std::move(name), body = std::move(body)] {
    pthread_setname_np(pthread_self(), name.substr(0, 15).c_str());
    unblock_wake_signal();
    body(*this);
    finished_.store(true, std::memory_order_release);
  });
}

LoopThread::~LoopThread() {
  stop();
}

void LoopThread::stop() {
  if (!thread_.joinable()) return;
  stopping_.store(true, std::memory_order_release);
  // One signal may come just before the thread enters its system call, so it is repeated.
  while (!finished_.load(std::memory_order_acquire)) {
    pthread_kill(thread_.native_handle(), SIGUSR2);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  thread_.join();
}

bool pin_to_cpu(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<size_t>(cpu), &set);
  return sched_setaffinity(0, sizeof(set), &set) == 0;
}

}  // namespace varve::fs
