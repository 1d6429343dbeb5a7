#include <unistd.h>

#include <csignal>

#include "chunkstore/layer_pack/layer_pack.h"

int main(int argc, char** argv) {
  // A closed pipe is an error that names what was being written, not a silent death.
  std::signal(SIGPIPE, SIG_IGN);
  varve::ToolIo io;
  io.err_is_terminal = ::isatty(STDERR_FILENO) == 1;
  return varve::layer_pack::layer_pack_main(argc, argv, io);
}
