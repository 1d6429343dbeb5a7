// Which instructions of a statically linked program are executed, by it and by its children until
// they exec another one: `trace_text PROGRAM ARGUMENT...` prints the address of each, once, on
// descriptor 3. Steps through the whole run (ptrace(2)), some 4 us an instruction.
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

enum { kBase = 0x400000, kSize = 0x800000 };
static unsigned char executed[kSize];

static void note(pid_t process) {
  struct user_regs_struct registers;
  if (ptrace(PTRACE_GETREGS, process, 0, &registers) != 0) return;
  const unsigned long at = registers.rip - kBase;
  if (at < kSize) executed[at] = 1;
}

int main(int argc, char** argv) {
  const pid_t first = argc < 2 ? -1 : fork();
  if (first < 0) return 2;
  if (first == 0) {
    ptrace(PTRACE_TRACEME, 0, 0, 0);
    execv(argv[1], argv + 1);
    _exit(127);
  }
  int status = 0;
  waitpid(first, &status, 0);
  const long options = PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACECLONE |
                       PTRACE_O_TRACEEXEC | PTRACE_O_EXITKILL;
  ptrace(PTRACE_SETOPTIONS, first, 0, options);
  ptrace(PTRACE_SINGLESTEP, first, 0, 0);
  int result = 1;
  pid_t process;
  while ((process = waitpid(-1, &status, __WALL)) > 0) {
    if (!WIFSTOPPED(status)) {
      if (process == first && WIFEXITED(status)) result = WEXITSTATUS(status);
      continue;
    }
    long signal = WSTOPSIG(status);
    if (signal == SIGTRAP && status >> 16 == PTRACE_EVENT_EXEC) {
      ptrace(PTRACE_DETACH, process, 0, 0);
      continue;
    }
    if (signal == SIGTRAP || signal == SIGSTOP) {
      note(process);
      signal = 0;
    }
    ptrace(PTRACE_SINGLESTEP, process, 0, signal);
  }
  FILE* out = fdopen(3, "w");
  if (out == NULL) return 2;
  for (unsigned long i = 0; i < kSize; ++i) {
    if (executed[i]) fprintf(out, "%lx\n", i + kBase);
  }
  return fclose(out) == 0 ? result : 2;
}
