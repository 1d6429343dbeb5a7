#include "chunkstore/source/directory_source.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <filesystem>

#include "base/file_io.h"
#include "base/temp_dir.h"
#include "tests/unit/chunkstore/source/entry_collector.h"

namespace varve::chunkstore {
namespace {

class DirectorySourceTest : public ::testing::Test {
 protected:
  TempDir dir_ = TempDir::create("varve-directory-source-").value();
  std::string path(const std::string& name) const { return dir_.path() + "/" + name; }

  void write(const std::string& name, std::string_view content) const {
    const UniqueFd fd = open_file(path(name), O_WRONLY | O_CREAT | O_TRUNC).value();
    ASSERT_TRUE(write_all(fd.get(), as_bytes(content)));
  }

  Result<EntryCollector> collect(const DirectoryOptions& options = {}) const {
    EntryCollector collector;
    VARVE_ASSIGN(const auto source, open_directory_source(dir_.path(), options));
    VARVE_TRY(source->read_into(collector));
    return collector;
  }
};

TEST_F(DirectorySourceTest, ReadsEveryTypeWithItsAttributes) {
  write("f", "hello");
  ASSERT_EQ(::chmod(path("f").c_str(), 04751), 0);
  const timespec times[2] = {{1, 1}, {-100, 999'999'999}};
  ASSERT_EQ(::utimensat(AT_FDCWD, path("f").c_str(), times, 0), 0);
  ASSERT_EQ(::symlink("some/target", path("l").c_str()), 0);
  ASSERT_EQ(::mkfifo(path("p").c_str(), 0600), 0);
  ASSERT_EQ(::mkdir(path("d").c_str(), 0755), 0);
  const UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{.sun_family = AF_UNIX};
  std::snprintf(address.sun_path, sizeof(address.sun_path), "%s", path("d/s").c_str());
  ASSERT_EQ(::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);

  const auto got = collect();
  ASSERT_TRUE(got) << got.error().to_string();
  ASSERT_EQ(got->entries.size(), 6u);
  EXPECT_EQ(got->find("")->type, EntryType::kDirectory);
  EXPECT_EQ(got->find("")->mode, 0700);
  EXPECT_EQ(got->find("f")->mode, 04751);
  EXPECT_EQ(got->find("f")->mtime_s, -100);
  EXPECT_EQ(got->find("f")->mtime_ns, 999'999'999u);
  EXPECT_EQ(got->find("f")->uid, ::getuid());
  EXPECT_EQ(got->contents.at("f"), "hello");
  EXPECT_EQ(got->find("l")->target, "some/target");
  EXPECT_EQ(got->find("p")->type, EntryType::kFifo);
  EXPECT_EQ(got->find("d/s")->type, EntryType::kSocket);
}

TEST_F(DirectorySourceTest, OneNameOfAHardLinkGroupIsRealAndTheOthersPointAtIt) {
  write("a", "shared");
  ASSERT_EQ(::mkdir(path("d").c_str(), 0755), 0);
  ASSERT_EQ(::link(path("a").c_str(), path("d/b").c_str()), 0);
  ASSERT_EQ(::link(path("a").c_str(), path("c").c_str()), 0);
  ASSERT_EQ(::mkfifo(path("p").c_str(), 0600), 0);
  ASSERT_EQ(::link(path("p").c_str(), path("q").c_str()), 0);
  const auto got = collect();
  ASSERT_TRUE(got) << got.error().to_string();
  size_t link_count = 0;
  for (const Entry& entry : got->entries) link_count += entry.type == EntryType::kHardLink;
  EXPECT_EQ(link_count, 3u);
  const auto lines = got->describe();
  EXPECT_EQ(lines.at("a"), lines.at("c"));
  EXPECT_EQ(lines.at("a"), lines.at("d/b"));
  EXPECT_EQ(lines.at("p"), lines.at("q"));
}

TEST_F(DirectorySourceTest, SymlinksAreNeverFollowed) {
  ASSERT_EQ(::symlink("/etc", path("etc").c_str()), 0);
  ASSERT_EQ(::symlink(".", path("loop").c_str()), 0);
  const auto got = collect();
  ASSERT_TRUE(got) << got.error().to_string();
  EXPECT_EQ(got->entries.size(), 3u);
}

TEST_F(DirectorySourceTest, XattrNamesAndValuesAreBytes) {
  write("f", "");
  const std::string value("\0\xff\n", 3);
  const std::string big(3000, 'v');
  if (::setxattr(path("f").c_str(), "user.\xff=%", value.data(), value.size(), 0) != 0) {
    GTEST_SKIP() << "no user xattrs on this filesystem: " << std::strerror(errno);
  }
  ASSERT_EQ(::setxattr(path("f").c_str(), "user.big", big.data(), big.size(), 0), 0);
  ASSERT_EQ(::setxattr(path("f").c_str(), "user.empty", "", 0, 0), 0);
  ASSERT_EQ(::symlink("f", path("link").c_str()), 0);
  ASSERT_EQ(::setxattr(dir_.path().c_str(), "user.root", "r", 1, 0), 0);
  // More names than a first buffer holds.
  write("many", "");
  std::map<std::string, std::string> many;
  for (int i = 0; i < 20; ++i) many["user." + std::string(100, static_cast<char>('a' + i))] = "";
  for (const auto& xattr : many)
    ASSERT_EQ(::setxattr(path("many").c_str(), xattr.first.c_str(), "", 0, 0), 0);
  for (const bool allow_list_xattrs_at : {true, false}) {
    const auto got = collect({.allow_list_xattrs_at = allow_list_xattrs_at});
    ASSERT_TRUE(got) << got.error().to_string();
    EXPECT_EQ(got->find("f")->xattrs,
              (std::map<std::string, std::string>{
                  {"user.\xff=%", value}, {"user.big", big}, {"user.empty", ""}}));
    EXPECT_TRUE(got->find("link")->xattrs.empty());
    EXPECT_EQ(got->find("")->xattrs, (std::map<std::string, std::string>{{"user.root", "r"}}));
    EXPECT_EQ(got->find("many")->xattrs, many);
  }
}

TEST_F(DirectorySourceTest, HolesAreSkippedAndReadAsZeros) {
  const UniqueFd fd = open_file(path("sparse"), O_RDWR | O_CREAT).value();
  ASSERT_TRUE(pwrite_all(fd.get(), 1 << 20, as_bytes("data")));
  ASSERT_EQ(::ftruncate(fd.get(), 3 << 20), 0);
  const auto got = collect();
  ASSERT_TRUE(got) << got.error().to_string();
  std::string expected(3 << 20, '\0');
  expected.replace(1 << 20, 4, "data");
  EXPECT_TRUE(got->contents.at("sparse") == expected);
}

TEST_F(DirectorySourceTest, PathsLongerThanPathMaxArePacked) {
  const std::string name(200, 'n');
  UniqueFd at = open_file(dir_.path(), O_RDONLY | O_DIRECTORY).value();
  std::string deepest;
  for (int depth = 0; depth < 30; ++depth) {
    ASSERT_EQ(::mkdirat(at.get(), name.c_str(), 0755), 0);
    at = open_file_at(at.get(), name, O_RDONLY | O_DIRECTORY).value();
    deepest += (depth ? "/" : "") + name;
  }
  const UniqueFd file = open_file_at(at.get(), "f", O_WRONLY | O_CREAT).value();
  ASSERT_TRUE(write_all(file.get(), as_bytes("deep")));
  const auto got = collect();
  ASSERT_TRUE(got) << got.error().to_string();
  EXPECT_EQ(got->entries.size(), 32u);
  EXPECT_EQ(got->contents.at(deepest + "/f"), "deep");
}

TEST_F(DirectorySourceTest, ALargeDirectoryIsListedOnce) {
  for (int i = 0; i < 1000; ++i) write("f" + std::to_string(i), std::to_string(i));
  const auto got = collect();
  ASSERT_TRUE(got) << got.error().to_string();
  EXPECT_EQ(got->entries.size(), 1001u);
  EXPECT_EQ(got->describe().size(), 1001u);
  EXPECT_EQ(got->contents.at("f999"), "999");
}

/// Runs `change` between the listing of `victim` and the reading of its content.
class ChangingSink final : public EntrySink {
 public:
  ChangingSink(std::string victim, std::function<void()> change)
      : victim_(std::move(victim)), change_(std::move(change)) {}
  Status add(Entry entry) override {
    if (entry.path == victim_) change_();
    return inner_.add(std::move(entry));
  }

 private:
  std::string victim_;
  std::function<void()> change_;
  EntryCollector inner_;
};

TEST_F(DirectorySourceTest, AFileThatChangesWhileItIsPackedIsRefusedByName) {
  const std::function<void()> changes[] = {
      [&] { write("victim", "longer than before"); },
      [&] { write("victim", "equal"); },  // same size, another time
      [&] { ASSERT_EQ(::chmod(path("victim").c_str(), 0600), 0); },
      [&] {
        write("other", "again");
        ASSERT_EQ(::rename(path("other").c_str(), path("victim").c_str()), 0);
      },
      [&] {
        ASSERT_EQ(::unlink(path("victim").c_str()), 0);
        ASSERT_EQ(::mkfifo(path("victim").c_str(), 0600), 0);
      },
      [&] {
        ::unlink(path("victim").c_str());
        ASSERT_EQ(::symlink("/etc/passwd", path("victim").c_str()), 0);
      },
      [&] { ::unlink(path("victim").c_str()); },
  };
  for (const auto& change : changes) {
    ::unlink(path("victim").c_str());
    write("victim", "equal");
    ::usleep(10'000);  // past the granularity of file times
    ChangingSink sink("victim", change);
    const auto source = open_directory_source(dir_.path(), {}).value();
    const Status status = source->read_into(sink);
    ASSERT_FALSE(status);
    EXPECT_NE(status.error().to_string().find("victim"), std::string::npos)
        << status.error().to_string();
  }
}

TEST_F(DirectorySourceTest, AFileThatIsCutWhileItIsReadIsRefused) {
  write("victim", std::string(1 << 20, 'x'));
  struct CuttingSink final : EntrySink {
    std::string path;
    Status add(Entry entry) override {
      if (!entry.deferred) return {};
      VARVE_ASSIGN(const auto stream, entry.deferred->open(entry.deferred_key));
      Bytes buffer(1000);
      VARVE_TRY(stream->read(buffer));
      EXPECT_EQ(::truncate(path.c_str(), 5000), 0);
      for (;;) {
        VARVE_ASSIGN(const size_t got, stream->read(buffer));
        if (got == 0) return {};
      }
    }
  } sink;
  sink.path = path("victim");
  const Status status = open_directory_source(dir_.path(), {}).value()->read_into(sink);
  ASSERT_FALSE(status);
  EXPECT_NE(status.error().to_string().find("victim"), std::string::npos);
}

TEST_F(DirectorySourceTest, AnErrorOfTheSinkEndsTheWalk) {
  for (int i = 0; i < 600; ++i) write("f" + std::to_string(i), "x");
  struct FailingSink final : EntrySink {
    int count = 0;
    Status add(Entry) override {
      if (++count == 10) return fail(ErrorCode::kNoSpace, "full");
      return {};
    }
  } sink;
  const Status status = open_directory_source(dir_.path(), {}).value()->read_into(sink);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code(), ErrorCode::kNoSpace);
  EXPECT_EQ(sink.count, 10);
}

TEST_F(DirectorySourceTest, ARootThatIsNoDirectoryIsRefusedByName) {
  write("f", "x");
  for (const char* name : {"f", "missing"}) {
    const auto source = open_directory_source(path(name), {});
    ASSERT_FALSE(source);
    EXPECT_NE(source.error().to_string().find(name), std::string::npos);
  }
}

}  // namespace
}  // namespace varve::chunkstore
