#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include <filesystem>
#include <map>
#include <memory>
#include <set>

#include "base/file_io.h"
#include "tests/kernel/fs/fs_test.h"

namespace varve::test {
namespace {

class FsViewsTest : public FsTest {
 protected:
  void SetUp() override { varvefs_.start(); }

  const std::string& source_ = shared_.source;
  const TestLayer& layer_ = shared_.layer;
};

TEST_P(FsViewsTest, TheTreeViewEqualsTheSource) {
  ControlClient client = varvefs_.connect();
  const auto answer = varvefs_.attach(client, "app:v1");
  EXPECT_EQ(compare_trees(source_, VarvefsProcess::tree_of(answer)), std::vector<std::string>());
}

TEST_P(FsViewsTest, TheKernelMountEqualsTheSource) {
  ControlClient client = varvefs_.connect();
  const auto answer = varvefs_.attach(client, "app:v1", "default", true);
  ASSERT_EQ(answer.fds.size(), 1u);
  const std::string mounted = "/proc/self/fd/" + std::to_string(answer.fds[0].get());
  EXPECT_EQ(compare_trees(source_, mounted + "/."), std::vector<std::string>());
}

TEST_P(FsViewsTest, TheImageFileHoldsTheImageByteForByte) {
  ControlClient client = varvefs_.connect();
  const auto answer = varvefs_.attach(client, "app:v1");
  const auto image = read_file(VarvefsProcess::image_of(answer), 1 << 30);
  ASSERT_TRUE(image) << image.error().to_string();
  EXPECT_TRUE(*image == layer_.image);
}

TEST_P(FsViewsTest, RandomRangesEqualTheImage) {
  ControlClient client = varvefs_.connect();
  const auto answer = varvefs_.attach(client, "app:v1");
  const UniqueFd fd = open_file(VarvefsProcess::image_of(answer), O_RDONLY | O_DIRECT).value();
  uint64_t state = 7;
  Bytes buffer(1 << 20);
  for (int i = 0; i < 300; ++i) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    const uint64_t offset = (state >> 20) % layer_.image.size();
    const uint64_t size =
        std::min<uint64_t>(1 + (state >> 40) % buffer.size(), layer_.image.size() - offset);
    must(pread_exact(fd.get(), offset, {buffer.data(), size}));
    ASSERT_TRUE(std::equal(buffer.begin(), buffer.begin() + static_cast<ptrdiff_t>(size),
                           layer_.image.begin() + static_cast<ptrdiff_t>(offset)))
        << "at " << offset << ", " << size << " bytes";
  }
}

TEST_P(FsViewsTest, AMissingXattrIsEnodataAndNothingElse) {
  ControlClient client = varvefs_.connect();
  const auto answer = varvefs_.attach(client, "app:v1");
  const std::string tree = VarvefsProcess::tree_of(answer);
  char value[64];
  for (const std::string& path :
       {tree, tree + "/odd/empty", tree + "/large/text", VarvefsProcess::image_of(answer)}) {
    EXPECT_EQ(getxattr(path.c_str(), "user.absent", value, sizeof(value)), -1);
    EXPECT_EQ(errno, ENODATA) << path;
    EXPECT_EQ(getxattr(path.c_str(), "trusted.overlay.opaque", value, sizeof(value)), -1);
    EXPECT_EQ(errno, ENODATA) << path;
  }
  EXPECT_EQ(getxattr((tree + "/odd/empty").c_str(), "user.note", value, 2), -1);
  EXPECT_EQ(errno, ERANGE);
}

TEST_P(FsViewsTest, EveryNameOfAHugeDirectoryComesOnce) {
  ControlClient client = varvefs_.connect();
  const auto answer = varvefs_.attach(client, "app:v1");
  // The second pass is answered from the kernel's cache of the listing.
  for (int pass = 0; pass < 2; ++pass) {
    std::set<std::string> names;
    size_t count = 0;
    for (const auto& entry :
         std::filesystem::directory_iterator(VarvefsProcess::tree_of(answer) + "/wide")) {
      names.insert(entry.path().filename());
      ++count;
    }
    EXPECT_EQ(count, 3000u);
    EXPECT_EQ(names.size(), 3000u);
  }
}

TEST_P(FsViewsTest, PlacesInADirectoryCanBeSoughtAndInodeNumbersAgreeWithThoseOfTheFiles) {
  ControlClient client = varvefs_.connect();
  const auto answer = varvefs_.attach(client, "app:v1");
  const std::string path = VarvefsProcess::tree_of(answer) + "/wide";
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(opendir(path.c_str()), closedir);
  ASSERT_NE(directory, nullptr);
  struct Place {
    long position;
    std::string name;
  };
  std::vector<Place> places;
  for (long at = telldir(directory.get());; at = telldir(directory.get())) {
    const dirent* entry = readdir(directory.get());
    if (entry == nullptr) break;
    places.push_back({at, entry->d_name});
    struct stat status;
    if (std::string_view(entry->d_name) == "..") continue;
    ASSERT_EQ(fstatat(dirfd(directory.get()), entry->d_name, &status, AT_SYMLINK_NOFOLLOW), 0);
    EXPECT_EQ(status.st_ino, entry->d_ino) << entry->d_name;
  }
  ASSERT_EQ(places.size(), 3002u);
  for (size_t i = 0; i < places.size(); ++i) {
    const Place& place = places[i * 1999 % places.size()];
    seekdir(directory.get(), place.position);
    const dirent* entry = readdir(directory.get());
    ASSERT_NE(entry, nullptr) << place.name;
    EXPECT_EQ(entry->d_name, place.name);
  }
}

TEST_P(FsViewsTest, UnknownDomainsAndLayersAreAbsentAndAppearWhenTheyAreAttached) {
  const std::string directory = varvefs_.mountpoint() + "/default";
  const std::string path = directory + "/" + layer_.id.hex();
  EXPECT_NE(access(directory.c_str(), F_OK), 0);
  EXPECT_EQ(errno, ENOENT);
  EXPECT_TRUE(std::filesystem::is_empty(varvefs_.mountpoint()));
  ControlClient client = varvefs_.connect();
  varvefs_.attach(client, "app:v1");
  EXPECT_EQ(access(path.c_str(), F_OK), 0);
  EXPECT_NE(access((directory + "/" + std::string(64, '0')).c_str(), F_OK), 0);
  EXPECT_EQ(errno, ENOENT);
  EXPECT_NE(access((directory + "/not-an-id").c_str(), F_OK), 0);
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(varvefs_.mountpoint())) {
    names.insert(entry.path().filename());
  }
  EXPECT_EQ(names, std::set<std::string>{"default"});
}

// Asks for few entries at a time, and nothing in advance.
std::vector<std::string> next_names(int directory) {
  alignas(8) char buffer[512];
  const ssize_t size = getdents64(directory, buffer, sizeof(buffer));
  std::vector<std::string> names;
  for (ssize_t at = 0; at < size;) {
    const auto* entry = reinterpret_cast<const dirent64*>(buffer + at);
    names.emplace_back(entry->d_name);
    at += entry->d_reclen;
  }
  return names;
}

TEST_P(FsViewsTest, WhatStaysIsListedOnceWhileOtherLayersComeAndGo) {
  constexpr int kDomainCount = 200;
  ControlClient client = varvefs_.connect();
  std::map<std::string, std::string> leases;
  for (int i = 0; i < kDomainCount; ++i) {
    const std::string domain = "d" + std::to_string(i);
    leases[domain] = varvefs_.attach(client, "app:v1", domain).body.at("lease").as_string();
  }
  const UniqueFd directory = open_file(varvefs_.mountpoint(), O_RDONLY | O_DIRECTORY).value();
  std::multiset<std::string> seen;
  std::set<std::string> gone;
  for (auto names = next_names(directory.get()); !names.empty();
       names = next_names(directory.get())) {
    seen.insert(names.begin(), names.end());
    // Some of those that were listed, and in their place others.
    for (const std::string& name : names) {
      if (!leases.contains(name) || gone.size() == kDomainCount / 4) continue;
      ASSERT_EQ(client.post("/v1/detach", {{"lease", leases[name]}}).value().status, 200);
      gone.insert(name);
      varvefs_.attach(client, "app:v1", "new-" + name);
    }
    while (client.get("/v1/status").value().body.at("layers").to_number<int>() != kDomainCount) {
    }
  }
  for (const auto& [domain, lease] : leases) EXPECT_EQ(seen.count(domain), 1U) << domain;
}

TEST_P(FsViewsTest, NothingCanBeWritten) {
  ControlClient client = varvefs_.connect();
  const auto answer = varvefs_.attach(client, "app:v1");
  const std::string tree = VarvefsProcess::tree_of(answer);
  EXPECT_LT(open((tree + "/new").c_str(), O_CREAT | O_WRONLY, 0644), 0);
  EXPECT_EQ(errno, EROFS);
  EXPECT_NE(unlink((tree + "/odd/empty").c_str()), 0);
  EXPECT_EQ(errno, EROFS);
  EXPECT_LT(open(VarvefsProcess::image_of(answer).c_str(), O_RDWR), 0);
}

TEST_P(FsViewsTest, StatfsAnswersForEveryPlace) {
  ControlClient client = varvefs_.connect();
  const auto answer = varvefs_.attach(client, "app:v1");
  for (const std::string& path : {varvefs_.mountpoint(), VarvefsProcess::tree_of(answer)}) {
    EXPECT_GE(std::filesystem::space(path).capacity, 0u) << path;
  }
  EXPECT_EQ(std::filesystem::space(VarvefsProcess::tree_of(answer)).capacity, layer_.image.size());
}

TEST_P(FsViewsTest, TwoDomainsShareNoNodes) {
  ControlClient client = varvefs_.connect();
  const auto first = varvefs_.attach(client, "app:v1", "one");
  const auto second = varvefs_.attach(client, "app:v1", "two");
  std::set<ino_t> inodes;
  size_t count = 0;
  for (const auto* answer : {&first, &second}) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(
             VarvefsProcess::tree_of(*answer) + "/small")) {
      struct stat st;
      ASSERT_EQ(lstat(entry.path().c_str(), &st), 0);
      inodes.insert(st.st_ino);
      ++count;
    }
    struct stat st;
    ASSERT_EQ(stat(VarvefsProcess::image_of(*answer).c_str(), &st), 0);
    inodes.insert(st.st_ino);
    ++count;
  }
  EXPECT_EQ(inodes.size(), count);
}

TEST_P(FsViewsTest, NodeIdsAreTheSameAfterADetachAndANewAttach) {
  std::vector<ino_t> inodes;
  for (int i = 0; i < 2; ++i) {
    ControlClient client = varvefs_.connect();
    const auto answer = varvefs_.attach(client, "app:v1");
    struct stat st;
    ASSERT_EQ(lstat((VarvefsProcess::tree_of(answer) + "/large/text").c_str(), &st), 0);
    inodes.push_back(st.st_ino);
  }
  EXPECT_EQ(inodes[0], inodes[1]);
}

VARVE_FS_TEST_SUITE(FsViewsTest);

}  // namespace
}  // namespace varve::test
