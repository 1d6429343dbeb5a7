#include "chunkstore/store/file_store.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <set>

#include "base/file_io.h"
#include "base/remove_tree.h"
#include "base/temp_dir.h"
#include "tests/support/crash_file_ops.h"

namespace varve::chunkstore {
namespace {

class FileStoreTest : public ::testing::Test {
 protected:
  // In memory: these tests sync thousands of files.
  TempDir dir_ = TempDir::create("varve-file-store-", "/dev/shm").value();
  std::string path_ = dir_.path() + "/store";
  std::shared_ptr<Store> store_ = open_store("file://" + path_, true).value();

  std::set<std::string> keys(const std::string& prefix = "") {
    std::set<std::string> found;
    EXPECT_TRUE(store_->list(
        prefix,
        [&](const std::string& key, const ObjectInfo&) -> Status {
          found.insert(key);
          return {};
        },
        kNoDeadline));
    return found;
  }
  size_t temp_count() {
    size_t count = 0;
    for ([[maybe_unused]] const auto& file : std::filesystem::directory_iterator(path_ + "/tmp"))
      ++count;
    return count;
  }
  std::string text_of(const std::string& key) {
    const auto bytes = store_->get(key, 1 << 20, kNoDeadline);
    return bytes ? std::string(as_text(*bytes)) : bytes.error().to_string();
  }
};

TEST_F(FileStoreTest, PutKeepsWhatIsThereAndReplaceReplaces) {
  EXPECT_TRUE(store_->put_if_absent("images/a", as_bytes("one"), kNoDeadline).value());
  EXPECT_FALSE(store_->put_if_absent("images/a", as_bytes("two"), kNoDeadline).value());
  EXPECT_EQ(text_of("images/a"), "one");
  EXPECT_TRUE(store_->replace("refs/a:b", as_bytes("one"), kNoDeadline));
  EXPECT_TRUE(store_->replace("refs/a:b", as_bytes("two"), kNoDeadline));
  EXPECT_EQ(text_of("refs/a:b"), "two");
  EXPECT_EQ(store_->stat("refs/a:b", kNoDeadline).value().size, 3u);
  EXPECT_EQ(temp_count(), 0u);
}

TEST_F(FileStoreTest, WhatIsToldAtOnceIsWhatIsThere) {
  // On a filesystem that reads ahead of its disk, unlike the one in memory.
  const TempDir directory = TempDir::create("varve-file-store-", "/var/tmp").value();
  for (const std::string& path : {path_, directory.path() + "/store"}) {
    const auto store = open_store(path, true).value();
    EXPECT_FALSE(store->get_at_once("refs/a:b", 100));
    for (const char* text : {"one", "other"}) {
      ASSERT_TRUE(store->replace("refs/a:b", as_bytes(text), kNoDeadline));
      // Not every filesystem can tell.
      const auto bytes = store->get_at_once("refs/a:b", 100);
      EXPECT_EQ(bytes ? as_text(*bytes) : text, text);
    }
    EXPECT_FALSE(store->get_at_once("refs/a:b", 3));
    EXPECT_FALSE(store->get_at_once("../store/refs/a:b", 100));
    std::filesystem::rename(path, path + "-before");
    EXPECT_FALSE(store->get_at_once("refs/a:b", 100));
    ASSERT_TRUE(open_store(path, true));
    EXPECT_FALSE(store->get_at_once("refs/a:b", 100));
  }
}

TEST_F(FileStoreTest, AWriterShowsNothingBeforePublishAndVanishesWithoutIt) {
  {
    auto writer = store_->create().value();
    ASSERT_TRUE(writer->write(as_bytes("ab")));
    EXPECT_EQ(temp_count(), 1u);
    EXPECT_EQ(keys(), std::set<std::string>{"varve-store"});
  }
  EXPECT_EQ(temp_count(), 0u);
  auto writer = store_->create().value();
  ASSERT_TRUE(writer->write(as_bytes("ab")));
  ASSERT_TRUE(writer->write(as_bytes("cd")));
  ASSERT_TRUE(writer->publish("packs/aa/aabb"));
  writer.reset();
  EXPECT_EQ(text_of("packs/aa/aabb"), "abcd");
  EXPECT_EQ(temp_count(), 0u);
}

TEST_F(FileStoreTest, RangesOutsideAnObjectAreCorruptionAndMissingObjectsAreNotFound) {
  ASSERT_TRUE(store_->put_if_absent("packs/a", as_bytes("0123456789"), kNoDeadline));
  Bytes bytes(4);
  ASSERT_TRUE(store_->get_range("packs/a", 6, bytes, kNoDeadline));
  EXPECT_EQ(as_text(bytes), "6789");
  EXPECT_EQ(store_->get_range("packs/a", 7, bytes, kNoDeadline).error().code(),
            ErrorCode::kCorruption);
  EXPECT_EQ(store_->get_range("packs/a", UINT64_MAX, bytes, kNoDeadline).error().code(),
            ErrorCode::kCorruption);
  EXPECT_EQ(store_->get_range("packs/b", 0, bytes, kNoDeadline).error().code(),
            ErrorCode::kNotFound);
  EXPECT_EQ(store_->get("packs/a", 9, kNoDeadline).error().code(), ErrorCode::kCorruption);
  EXPECT_EQ(store_->remove("packs/b", kNoDeadline).error().code(), ErrorCode::kNotFound);
  EXPECT_EQ(store_->get("packs/a", 10, MonotonicClock::now()).error().code(), ErrorCode::kTimedOut);
}

TEST_F(FileStoreTest, ListsByPrefixAndRemovesEmptyDirectories) {
  for (const char* key : {"packs/aa/1", "packs/ab/2", "refs/x/y:z", "refs/x:y"}) {
    ASSERT_TRUE(store_->put_if_absent(key, as_bytes("x"), kNoDeadline));
  }
  EXPECT_EQ(keys("packs/"), (std::set<std::string>{"packs/aa/1", "packs/ab/2"}));
  EXPECT_EQ(keys("refs/"), (std::set<std::string>{"refs/x/y:z", "refs/x:y"}));
  EXPECT_EQ(keys("leases/"), std::set<std::string>{});
  ASSERT_TRUE(store_->remove("refs/x/y:z", kNoDeadline));
  EXPECT_FALSE(std::filesystem::exists(path_ + "/refs/x"));
  EXPECT_EQ(keys("refs/"), std::set<std::string>{"refs/x:y"});
  EXPECT_FALSE(store_->list(
      "packs", [](const std::string&, const ObjectInfo&) { return Status(); }, kNoDeadline));
}

TEST_F(FileStoreTest, RefusesKeysThatLeaveTheStore) {
  for (const char* key : {"", "../x", "a/../x", "/x", "a//b", "./a", "a/", "tmp/x", "tmp"}) {
    EXPECT_EQ(store_->get(key, 10, kNoDeadline).error().code(), ErrorCode::kInvalidArgument) << key;
    EXPECT_FALSE(store_->put_if_absent(key, as_bytes("x"), kNoDeadline)) << key;
  }
}

TEST_F(FileStoreTest, FollowsNoSymlinkAndDoesNotBlockOnAFifoButListsThem) {
  ASSERT_TRUE(make_directories(path_ + "/packs/aa"));
  ASSERT_EQ(::symlink("/etc/passwd", (path_ + "/packs/aa/link").c_str()), 0);
  ASSERT_EQ(::symlink("/etc", (path_ + "/packs/etc").c_str()), 0);
  ASSERT_EQ(::mkfifo((path_ + "/packs/aa/fifo").c_str(), 0600), 0);
  for (const char* key : {"packs/aa/link", "packs/etc/passwd", "packs/aa/fifo"}) {
    EXPECT_EQ(store_->get(key, 1 << 20, kNoDeadline).error().code(), ErrorCode::kCorruption) << key;
  }
  EXPECT_EQ(store_->get("packs/aa", 10, kNoDeadline).error().code(), ErrorCode::kNotFound);
  EXPECT_EQ(keys("packs/"), (std::set<std::string>{"packs/aa/link", "packs/aa/fifo", "packs/etc"}));
}

TEST_F(FileStoreTest, OpeningChecksTheMarker) {
  const std::string id = store_->id();
  EXPECT_EQ(open_store(path_, false).value()->id(), id);
  EXPECT_EQ(open_store(path_, true).value()->id(), id);
  EXPECT_EQ(open_store("file://" + dir_.path() + "/none", false).error().code(),
            ErrorCode::kNotFound);
  EXPECT_EQ(open_store(dir_.path(), false).error().code(), ErrorCode::kNotFound);
  EXPECT_EQ(open_store(dir_.path(), true).error().code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(open_store("s3://b/p", true).error().code(), ErrorCode::kUnsupported);
  EXPECT_EQ(open_store("relative", true).error().code(), ErrorCode::kInvalidArgument);
  const auto cut_short = open_store("file://" + path_ + std::string("\0x", 2), false);
  ASSERT_FALSE(cut_short);
  EXPECT_EQ(cut_short.error().code(), ErrorCode::kInvalidArgument);
  ASSERT_TRUE(write_file_atomic(path_ + "/varve-store",
                                as_bytes(R"({"id":"x","type":"varve.store","version":7})")));
  EXPECT_EQ(open_store(path_, true).error().code(), ErrorCode::kUnsupported);
}

TEST_F(FileStoreTest, OnlyOldTemporaryFilesAreRemoved) {
  ASSERT_TRUE(write_file_atomic(path_ + "/tmp/old", as_bytes("x")));
  ASSERT_TRUE(write_file_atomic(path_ + "/tmp/new", as_bytes("x")));
  const timespec old_times[2] = {{1000, 0}, {1000, 0}};
  ASSERT_EQ(::utimensat(AT_FDCWD, (path_ + "/tmp/old").c_str(), old_times, 0), 0);
  EXPECT_EQ(store_->remove_stale_temporaries(86400, kNoDeadline).value(), 1u);
  EXPECT_TRUE(std::filesystem::exists(path_ + "/tmp/new"));
  EXPECT_FALSE(std::filesystem::exists(path_ + "/tmp/old"));
}

TEST_F(FileStoreTest, AStoreThatWasCopiedWithoutItsEmptyDirectoryWorks) {
  ASSERT_TRUE(remove_tree(path_ + "/tmp"));
  EXPECT_TRUE(store_->put_if_absent("packs/a", as_bytes("x"), kNoDeadline));
  ASSERT_TRUE(remove_tree(path_ + "/tmp"));
  EXPECT_TRUE(store_->now_s(kNoDeadline));
}

TEST_F(FileStoreTest, AStoreDirectoryRemovedUnderneathIsNotFound) {
  ASSERT_TRUE(store_->put_if_absent("packs/a", as_bytes("x"), kNoDeadline));
  ASSERT_TRUE(remove_tree(path_));
  EXPECT_EQ(store_->get("packs/a", 10, kNoDeadline).error().code(), ErrorCode::kNotFound);
  EXPECT_FALSE(store_->put_if_absent("packs/b", as_bytes("x"), kNoDeadline));
}

TEST_F(FileStoreTest, AStoreIsCurrentWhileItsPathNamesIt) {
  EXPECT_TRUE(store_->is_current());
  ASSERT_TRUE(store_->put_if_absent("packs/a", as_bytes("x"), kNoDeadline));
  EXPECT_TRUE(store_->is_current());
  ASSERT_TRUE(remove_tree(path_));
  EXPECT_FALSE(store_->is_current());
  const auto again = open_file_store(path_, true).value();
  EXPECT_TRUE(again->is_current());
  EXPECT_FALSE(store_->is_current());
}

// One of everything that writes. Acknowledged keys are added to `done`.
Status write_all_kinds(Store& store, std::set<std::string>& done) {
  VARVE_TRY(store.put_if_absent("images/a", as_bytes("image"), kNoDeadline));
  done.insert("images/a");
  VARVE_ASSIGN(auto writer, store.create());
  VARVE_TRY(writer->write(as_bytes("first half ")));
  VARVE_TRY(writer->write(as_bytes("second half")));
  VARVE_TRY(writer->publish("packs/aa/aabb"));
  done.insert("packs/aa/aabb");
  VARVE_TRY(store.replace("refs/x:y", as_bytes("new"), kNoDeadline));
  done.insert("refs/x:y");
  return {};
}

void expect_only_whole_objects(Store& store, const std::set<std::string>& done, uint64_t step) {
  const auto expect = [&](const std::string& key, const std::string& old_text,
                          const std::string& new_text) {
    const auto bytes = store.get(key, 100, kNoDeadline);
    const std::string found = bytes ? std::string(as_text(*bytes)) : "";
    EXPECT_TRUE(found == new_text || (found == old_text && done.count(key) == 0))
        << "cut before step " << step << ": " << key << " is '" << found << "'";
  };
  expect("images/a", "", "image");
  expect("packs/aa/aabb", "", "first half second half");
  expect("refs/x:y", "old", "new");
}

/// A filesystem that says it has no O_DIRECT, or says so in the middle of a write.
class DirectOps : public FileOps {
 public:
  enum class Answer { kYes, kNo, kNoWhenWritten };
  explicit DirectOps(Answer answer) : answer_(answer) {}

  Status set_direct(int fd, bool is_direct) override {
    if (is_direct && answer_ == Answer::kNo) return fail_errno(EINVAL, "no O_DIRECT");
    is_direct_ = is_direct;
    if (is_direct) ++direct_count_;
    // Without O_DIRECT in truth: this must hold on every filesystem that the tests run on.
    return FileOps::set_direct(fd, false);
  }
  Status write(int fd, ByteView bytes) override {
    if (is_direct_) {
      EXPECT_EQ(reinterpret_cast<uintptr_t>(bytes.data()) % kDirectAlignment, 0u);
      EXPECT_EQ(bytes.size() % kDirectAlignment, 0u);
      EXPECT_EQ(::lseek(fd, 0, SEEK_CUR) % static_cast<off_t>(kDirectAlignment), 0);
      if (answer_ == Answer::kNoWhenWritten) {
        EXPECT_TRUE(FileOps::write(fd, bytes.first(kDirectAlignment)));
        return fail_errno(EINVAL, "no O_DIRECT after all");
      }
    }
    return FileOps::write(fd, bytes);
  }
  size_t direct_count() const { return direct_count_; }

 private:
  const Answer answer_;
  bool is_direct_ = false;
  size_t direct_count_ = 0;
};

TEST_F(FileStoreTest, ObjectsOfEverySizeAreWholeWithAndWithoutDirectWrites) {
  constexpr size_t kStep = 1 << 20;
  for (const auto answer :
       {DirectOps::Answer::kYes, DirectOps::Answer::kNo, DirectOps::Answer::kNoWhenWritten}) {
    ASSERT_TRUE(remove_tree(path_));
    store_ = open_store(path_, true).value();
    DirectOps ops(answer);
    const auto store = open_file_store(path_, false, ops).value();
    for (const size_t size : {size_t{1}, kStep - 1, kStep, kStep + 1, 3 * kStep, 3 * kStep + 5}) {
      Bytes content(size);
      for (size_t i = 0; i < size; ++i) content[i] = static_cast<uint8_t>(i * i >> 7);
      const std::string key = "packs/aa/" + std::to_string(size);
      const auto writer = store->create().value();
      for (size_t at = 0; at < size;) {
        const size_t piece = std::min<size_t>(size - at, 70'001);
        ASSERT_TRUE(writer->write(ByteView(content).subspan(at, piece)));
        at += piece;
      }
      ASSERT_TRUE(writer->publish(key));
      EXPECT_EQ(store->get(key, size, kNoDeadline).value(), content) << size;
      // And with what this machine really does.
      const std::string whole = "packs/bb/" + std::to_string(size);
      ASSERT_TRUE(store_->put_if_absent(whole, content, kNoDeadline));
      EXPECT_EQ(store_->get(whole, size, kNoDeadline).value(), content) << size;
    }
    EXPECT_EQ(ops.direct_count(), answer == DirectOps::Answer::kNo ? 0u : 4u);
  }
}

TEST_F(FileStoreTest, ACrashBeforeAnyStepLeavesWholeObjectsOrNone) {
  for (const bool lose_unsynced : {false, true}) {
    uint64_t step = 1;
    for (bool cut = true; cut; ++step) {
      ASSERT_TRUE(remove_tree(path_));
      store_ = open_store(path_, true).value();
      ASSERT_TRUE(store_->replace("refs/x:y", as_bytes("old"), kNoDeadline));
      const UniqueFd root = open_file(path_, O_RDONLY | O_DIRECTORY).value();
      test::CrashFileOps ops(root.get(), step);
      std::set<std::string> done;
      {
        auto crashing = open_file_store(path_, false, ops).value();
        const Status status = write_all_kinds(*crashing, done);
        cut = ops.crashed();
        EXPECT_EQ(status.has_value(), !cut) << "step " << step;
      }
      if (lose_unsynced) ops.lose_unsynced();
      auto reopened = open_store(path_, false);
      ASSERT_TRUE(reopened);
      expect_only_whole_objects(**reopened, done, step);
      std::set<std::string> again;
      EXPECT_TRUE(write_all_kinds(**reopened, again)) << "step " << step;
      expect_only_whole_objects(**reopened, again, step);
    }
    EXPECT_GT(step, 15u);
  }
}

TEST_F(FileStoreTest, ARemovalThatWasAcknowledgedOutlivesACrash) {
  for (const char* key : {"refs/x:y", "refs/a/b:c"}) {
    bool cut = true;
    for (uint64_t step = 1; cut; ++step) {
      ASSERT_TRUE(store_->replace(key, as_bytes("old"), kNoDeadline));
      const UniqueFd root = open_file(path_, O_RDONLY | O_DIRECTORY).value();
      test::CrashFileOps ops(root.get(), step);
      const Status removed = open_file_store(path_, false, ops).value()->remove(key, kNoDeadline);
      cut = ops.crashed();
      EXPECT_TRUE(cut || removed) << step;
      ops.lose_unsynced();
      const auto found = open_store(path_, false).value()->get(key, 100, kNoDeadline);
      EXPECT_FALSE(removed && found) << key << ", step " << step;
      if (found) {
        EXPECT_EQ(as_text(*found), "old");
      }
    }
  }
}

TEST_F(FileStoreTest, TheTimeIsKnownOnAFullDisk) {
  const UniqueFd root = open_file(path_, O_RDONLY | O_DIRECTORY).value();
  test::CrashFileOps ops(root.get(), 1, ENOSPC);
  const int64_t before = store_->now_s(kNoDeadline).value();
  const auto full = open_file_store(path_, false, ops).value();
  const auto now = full->now_s(kNoDeadline);
  ASSERT_TRUE(now) << now.error().to_string();
  EXPECT_TRUE(ops.crashed());
  EXPECT_GE(*now, before);
}

TEST_F(FileStoreTest, AFullDiskIsAClearErrorAndLeavesNothingHalfPublished) {
  uint64_t step = 1;
  for (bool cut = true; cut; ++step) {
    ASSERT_TRUE(remove_tree(path_));
    store_ = open_store(path_, true).value();
    ASSERT_TRUE(store_->replace("refs/x:y", as_bytes("old"), kNoDeadline));
    const UniqueFd root = open_file(path_, O_RDONLY | O_DIRECTORY).value();
    test::CrashFileOps ops(root.get(), step, ENOSPC);
    std::set<std::string> done;
    {
      auto full = open_file_store(path_, false, ops).value();
      const Status status = write_all_kinds(*full, done);
      cut = ops.crashed();
      if (!cut) break;
      if (!status) {
        EXPECT_EQ(status.error().code(), ErrorCode::kNoSpace);
        EXPECT_NE(status.error().to_string().find(path_), std::string::npos)
            << status.error().to_string();
      }
    }
    expect_only_whole_objects(*store_, done, step);
    EXPECT_EQ(temp_count(), 0u) << "step " << step;
  }
  EXPECT_GT(step, 15u);
}

TEST_F(FileStoreTest, ACrashWhileTheStoreIsMadeLeavesADirectoryThatCanBeMadeAgain) {
  for (uint64_t step = 1;; ++step) {
    ASSERT_TRUE(remove_tree(path_));
    ASSERT_TRUE(make_directories(path_));
    const UniqueFd root = open_file(path_, O_RDONLY | O_DIRECTORY).value();
    test::CrashFileOps ops(root.get(), step);
    const bool opened = open_file_store(path_, true, ops).has_value();
    ops.lose_unsynced();
    const auto again = open_store(path_, true);
    EXPECT_TRUE(again) << again.error().to_string();
    if (opened) break;
    ASSERT_LT(step, 100u);
  }
}

}  // namespace
}  // namespace varve::chunkstore
