#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file_io.h"
#include "base/temp_dir.h"
#include "launcher/empty_namespace.h"

namespace varve::launcher {
namespace {

TEST(KeptNamespaceTest, OnlyARecordOfTheLivingDaemonCounts) {
  const TempDir run_dir = std::move(*TempDir::create("varve-kept-"));
  EXPECT_FALSE(open_kept_namespace(run_dir.path(), ::getpid()));
  ASSERT_TRUE(make_directories(run_dir.path() + "/namespaces"));
  const UniqueFd own = std::move(*open_file("/proc/self/ns/mnt", O_RDONLY));
  const std::string place =
      "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(own.get());
  const std::string record = run_dir.path() + "/namespaces/" + empty_namespace_name();
  ASSERT_EQ(::symlink(place.c_str(), record.c_str()), 0);

  const UniqueFd found = open_kept_namespace(run_dir.path(), ::getpid());
  ASSERT_TRUE(found);
  struct stat expected;
  struct stat status;
  ASSERT_EQ(::fstat(own.get(), &expected), 0);
  ASSERT_EQ(::fstat(found.get(), &status), 0);
  EXPECT_EQ(status.st_ino, expected.st_ino);
  // Left by one that died; its number may be somebody else's by now.
  EXPECT_FALSE(open_kept_namespace(run_dir.path(), ::getppid()));
  // Nobody that can be seen.
  EXPECT_FALSE(open_kept_namespace(run_dir.path(), 0));
}

}  // namespace
}  // namespace varve::launcher
