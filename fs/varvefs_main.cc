#include "fs/varvefs.h"

int main(int argc, char** argv) {
  return varve::fs::varvefs_main(argc, argv, {});
}
