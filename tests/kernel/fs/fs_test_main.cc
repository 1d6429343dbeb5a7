// Of the tests here that need root and /dev/fuse.
#include <gtest/gtest.h>

#include "tests/kernel/fs/fs_test.h"

int main(int argc, char** argv) {
  varve::test::skip_without_fuse();
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
