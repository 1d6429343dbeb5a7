#include <malloc.h>
#include <sched.h>
#include <unistd.h>

#include <csignal>

#include "chunkstore/layer_pack/layer_pack.h"

int main(int argc, char** argv) {
  // A closed pipe is an error that names what was being written, not a silent death.
  std::signal(SIGPIPE, SIG_IGN);
  // Chunks are allocated by one thread and freed by another. In one arena that keeps what it has,
  // a buffer is used again while its pages are there and in the cache; by default each thread's
  // arena grows, and pages go back to the kernel and come again.
  ::mallopt(M_ARENA_MAX, 1);
  ::mallopt(M_MMAP_THRESHOLD, 4 << 20);
  ::mallopt(M_TRIM_THRESHOLD, 256 << 20);
  // A thread that wakes waits for its turn instead of interrupting one that compresses, whose
  // tables it would push out of the cache. Whoever started this with another policy meant it.
  const sched_param no_priority = {};
  if (::sched_getscheduler(0) == SCHED_OTHER)
    (void)::sched_setscheduler(0, SCHED_BATCH, &no_priority);
  varve::ToolIo io;
  io.err_is_terminal = ::isatty(STDERR_FILENO) == 1;
  return varve::layer_pack::layer_pack_main(argc, argv, io);
}
