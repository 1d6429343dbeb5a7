#include "launcher/slot.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <set>

#include "base/file_io.h"
#include "base/temp_dir.h"

namespace varve::launcher {
namespace {

class SlotTest : public testing::Test {
 protected:
  void SetUp() override {
    directory_.emplace(std::move(*TempDir::create("varve-slot-")));
    run_dir_ = directory_->path() + "/run";
    // A host whose only hierarchy is a plain directory: nothing of the real one is touched.
    cgroup_mount_ = directory_->path() + "/cgroup";
    ASSERT_TRUE(make_directories(cgroup_mount_));
    ASSERT_TRUE(write_file_atomic(cgroup_mount_ + "/cgroup.controllers", as_bytes("")));
    auto host = qos::CgroupHost::probe(cgroup_mount_);
    ASSERT_TRUE(host);
    host_.emplace(std::move(*host));
  }
  bool exists(const std::string& path) const {
    struct stat status;
    return ::lstat(path.c_str(), &status) == 0;
  }
  Result<Slot> claim() {
    VARVE_ASSIGN(SlotPool pool, SlotPool::open(run_dir_));
    return std::move(pool).claim();
  }
  /// True when nothing is told.
  bool clean_up_dead() {
    const auto pool = SlotPool::open(run_dir_);
    return pool && pool->clean_up_dead(*host_).empty();
  }
  /// What a killed owner leaves: the slot's directory and record without a lock.
  void leave_behind(const std::string& number, const std::string& upper) {
    ASSERT_TRUE(make_directories(run_dir_ + "/sandboxes/" + number));
    ASSERT_TRUE(make_directories(upper + "/upper/etc"));
    ASSERT_EQ(::symlink(upper.c_str(), (run_dir_ + "/sandboxes/" + number + "/upper").c_str()), 0);
  }
  std::optional<TempDir> directory_;
  std::string run_dir_;
  std::string cgroup_mount_;
  std::optional<qos::CgroupHost> host_;
};

TEST_F(SlotTest, SlotsAreDistinctAndGivenBack) {
  std::set<uint32_t> numbers;
  std::vector<Slot> slots;
  for (int i = 0; i < 20; ++i) {
    auto slot = claim();
    ASSERT_TRUE(slot) << slot.error().to_string();
    EXPECT_TRUE(numbers.insert(slot->number()).second);
    slots.push_back(std::move(*slot));
  }
  for (Slot& slot : slots) EXPECT_TRUE(slot.release());
  for (const uint32_t number : numbers) {
    EXPECT_FALSE(exists(run_dir_ + "/sandboxes/" + std::to_string(number)));
  }
}

TEST_F(SlotTest, APoolKnowsThatItIsEmpty) {
  auto pool = SlotPool::open(run_dir_);
  ASSERT_TRUE(pool) << pool.error().to_string();
  const bool counts_directories = !pool->may_have_slots();
  auto slot = claim();
  ASSERT_TRUE(slot);
  EXPECT_TRUE(pool->may_have_slots());
  EXPECT_TRUE(slot->release());
  EXPECT_EQ(pool->may_have_slots(), !counts_directories);
}

TEST_F(SlotTest, TheCleanerRemovesWhatDeadOwnersLeft) {
  const std::string upper = directory_->path() + "/state/7";
  leave_behind("7", upper);
  EXPECT_TRUE(clean_up_dead());
  EXPECT_FALSE(exists(upper));
  EXPECT_FALSE(exists(run_dir_ + "/sandboxes/7"));
}

TEST_F(SlotTest, WhatCannotBeRemovedIsToldOnceAndTriedAgain) {
  leave_behind("7", directory_->path() + "/state/7");
  leave_behind("8", directory_->path() + "/state/8");
  struct stat pool {};
  ASSERT_EQ(::stat((run_dir_ + "/sandboxes").c_str(), &pool), 0);
  const std::string group = cgroup_mount_ + "/varve-" + std::to_string(pool.st_dev) + "-" +
                            std::to_string(pool.st_ino) + "-7";
  ASSERT_TRUE(make_directories(group + "/child"));
  EXPECT_FALSE(clean_up_dead());
  EXPECT_FALSE(exists(run_dir_ + "/sandboxes/8")) << "one sandbox's rest must not keep another's";
  EXPECT_TRUE(clean_up_dead());
  EXPECT_TRUE(exists(directory_->path() + "/state/7")) << "processes may still write there";
  ASSERT_EQ(::rmdir((group + "/child").c_str()), 0);
  EXPECT_TRUE(clean_up_dead());
  EXPECT_FALSE(exists(directory_->path() + "/state/7"));
  EXPECT_FALSE(exists(run_dir_ + "/sandboxes/7"));
}

TEST_F(SlotTest, TheCleanerLeavesLiveOwnersAlone) {
  auto slot = claim();
  ASSERT_TRUE(slot);
  const std::string upper = directory_->path() + "/state/live";
  ASSERT_TRUE(make_directories(upper));
  ASSERT_TRUE(slot->record_upper(upper));
  EXPECT_TRUE(clean_up_dead());
  EXPECT_TRUE(exists(upper));
  EXPECT_TRUE(exists(run_dir_ + "/sandboxes/" + std::to_string(slot->number())));
}

TEST_F(SlotTest, TheCleanerPassesOverWhatIsNoSlot) {
  ASSERT_TRUE(make_directories(run_dir_ + "/sandboxes/not-a-slot"));
  EXPECT_TRUE(clean_up_dead());
  EXPECT_TRUE(exists(run_dir_ + "/sandboxes/not-a-slot"));
}

TEST_F(SlotTest, ManyDeadSlotsGoInAFewRounds) {
  for (int i = 0; i < 200; ++i) {
    leave_behind(std::to_string(i), directory_->path() + "/state/" + std::to_string(i));
  }
  for (int round = 0; round < 4; ++round) EXPECT_TRUE(clean_up_dead());
  for (int i = 0; i < 200; ++i)
    EXPECT_FALSE(exists(directory_->path() + "/state/" + std::to_string(i)));
}

TEST_F(SlotTest, UpperTakesTheImageRootsAttributes) {
  struct stat root {};
  root.st_mode = S_IFDIR | 01777;
  root.st_mtim = {1234567890, 123456789};
  auto upper = UpperDir::create(directory_->path() + "/state", "3");
  ASSERT_TRUE(upper) << upper.error().to_string();
  ASSERT_TRUE(copy_root_attributes(upper->fd(), root));
  struct stat made;
  ASSERT_EQ(::stat((upper->path() + "/upper").c_str(), &made), 0);
  EXPECT_EQ(made.st_mode, root.st_mode);
  EXPECT_EQ(made.st_mtim.tv_sec, 1234567890);
  EXPECT_EQ(made.st_mtim.tv_nsec, 123456789);
  struct stat parent;
  ASSERT_EQ(::stat(upper->path().c_str(), &parent), 0);
  EXPECT_EQ(parent.st_mode & 0777, 0700u);
  EXPECT_TRUE(upper->remove());
  EXPECT_FALSE(exists(directory_->path() + "/state/3"));
}

TEST_F(SlotTest, AnUpperIsRemovedWhateverIsInIt) {
  const std::string state = directory_->path() + "/state";
  for (const char* content : {"work/work/incompat/volatile/dirty", "work/work/#1", "upper/a/b/c"}) {
    auto upper = UpperDir::create(state, "3");
    ASSERT_TRUE(upper) << upper.error().to_string();
    const std::string file = state + "/3/" + content;
    ASSERT_TRUE(make_directories(file.substr(0, file.rfind('/'))));
    ASSERT_TRUE(write_file_atomic(file, as_bytes("x")));
    const Status removed = upper->remove();
    EXPECT_TRUE(removed) << content << ": " << removed.error().to_string();
    EXPECT_FALSE(exists(state + "/3")) << content;
  }
}

TEST_F(SlotTest, ALeftoverUnderTheSameNameIsReplaced) {
  ASSERT_TRUE(make_directories(directory_->path() + "/state/3/upper/secret"));
  auto upper = UpperDir::create(directory_->path() + "/state", "3");
  ASSERT_TRUE(upper) << upper.error().to_string();
  EXPECT_FALSE(exists(upper->path() + "/upper/secret"));
}

}  // namespace
}  // namespace varve::launcher
