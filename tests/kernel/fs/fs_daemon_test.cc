#include <fcntl.h>
#include <linux/capability.h>
#include <poll.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>

#include <filesystem>
#include <thread>

#include "base/file_io.h"
#include "base/mount_api.h"
#include "fs/fuse/mount_point.h"
#include "tests/kernel/fs/fs_test.h"

namespace varve::test {
namespace {

using fs::TransportKind;

std::string transport_of(VarvefsProcess& varvefs, const char* member = "transport") {
  ControlClient client = varvefs.connect();
  return client.get("/v1/status").value().body.at(member).as_string().c_str();
}

// Without CAP_IPC_LOCK the kernel charges a ring's memory to RLIMIT_MEMLOCK.
void forbid_locked_memory() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2];
  must(syscall(SYS_capget, &header, data) == 0 ? Status() : fail_errno("capget"));
  data[0].effective &= ~(1U << CAP_IPC_LOCK);
  data[0].permitted &= ~(1U << CAP_IPC_LOCK);
  must(syscall(SYS_capset, &header, data) == 0 ? Status() : fail_errno("capset"));
  const rlimit none{0, 0};
  must(setrlimit(RLIMIT_MEMLOCK, &none) == 0 ? Status() : fail_errno("setrlimit"));
}

Status no_ring() {
  return fail(ErrorCode::kUnsupported, "the test forbids it");
}

TEST(FsDaemonTest, FallsBackToDevAndSaysWhyWhereTheRingIsOff) {
  VarvefsProcess varvefs(TransportKind::kAuto);
  varvefs.options().probe_ring = no_ring;
  varvefs.start();
  EXPECT_EQ(transport_of(varvefs), "dev");
  EXPECT_NE(transport_of(varvefs, "transport_fallback").find("the test forbids it"),
            std::string::npos);
  EXPECT_NE(varvefs.log().find("the test forbids it"), std::string::npos) << varvefs.log();
}

TEST(FsDaemonTest, FallsBackToDevAndSaysWhyWhereMemoryCannotBeLocked) {
  if (!enable_ring()) {
    // Then the fallback has another reason, which the test above covers.
    EXPECT_FALSE(fs::probe_fuse_ring());
    return;
  }
  VarvefsProcess varvefs(TransportKind::kAuto);
  varvefs.set_child_setup(forbid_locked_memory);
  varvefs.start();
  EXPECT_EQ(transport_of(varvefs), "dev");
  EXPECT_NE(varvefs.log().find("RLIMIT_MEMLOCK"), std::string::npos) << varvefs.log();
}

TEST(FsDaemonTest, EndsWithAnErrorWhenADemandedRingCannotBeHad) {
  VarvefsProcess varvefs(TransportKind::kRing);
  varvefs.options().probe_ring = no_ring;
  EXPECT_EQ(varvefs.start_and_wait(), error_code_to_exit_status(ErrorCode::kUnsupported));
  EXPECT_NE(varvefs.log().find("the test forbids it"), std::string::npos) << varvefs.log();
  EXPECT_FALSE(fs::find_mount(varvefs.mountpoint()));
}

// A private /dev that has nothing but /dev/null.
void hide_devices() {
  must(unshare_mounts());
  must(mount("none", "/dev", "tmpfs", 0, nullptr) == 0 ? Status() : fail_errno("mount"));
  must(mknod("/dev/null", S_IFCHR | 0666, makedev(1, 3)) == 0 ? Status() : fail_errno("mknod"));
}

TEST(FsDaemonTest, WhereThereIsNoFuseItSaysSo) {
  VarvefsProcess varvefs(TransportKind::kAuto);
  varvefs.set_child_setup(hide_devices);
  EXPECT_EQ(varvefs.start_and_wait(), error_code_to_exit_status(ErrorCode::kUnsupported));
  EXPECT_NE(varvefs.log().find("/dev/fuse"), std::string::npos) << varvefs.log();
}

// UBSan opens a pipe each time it looks at an object, and finds it damaged when it cannot.
#ifndef __SANITIZE_ADDRESS__
size_t open_descriptor_count() {
  return static_cast<size_t>(std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                                           std::filesystem::directory_iterator()));
}

TEST(FsDaemonTest, WithTooFewDescriptorsItSaysSoAndLeavesNoMount) {
  for (const TransportKind transport : available_transports()) {
    int status = -1;
    for (rlim_t more = 0; status != 0; ++more) {
      ASSERT_LT(more, 100U);
      VarvefsProcess varvefs(transport);
      varvefs.options().linger_s = 0;
      varvefs.set_child_setup([more] {
        const rlimit few{open_descriptor_count() + more, open_descriptor_count() + more};
        must(setrlimit(RLIMIT_NOFILE, &few) == 0 ? Status() : fail_errno("setrlimit"));
      });
      status = varvefs.start_and_wait();
      EXPECT_LT(status, 128) << more << ": " << varvefs.log();
      EXPECT_FALSE(fs::find_mount(varvefs.mountpoint())) << more << ": " << varvefs.log();
    }
  }
}
#endif

TEST(FsDaemonTest, ASecondOneInTheSameRunDirectoryIsRefused) {
  VarvefsProcess varvefs(TransportKind::kDev);
  varvefs.start();
  EXPECT_EQ(varvefs.start_and_wait(), error_code_to_exit_status(ErrorCode::kBusy));
  EXPECT_EQ(transport_of(varvefs), "dev");
}

TEST(FsDaemonTest, AMountPointThatAnotherOneServesIsLeftAlone) {
  VarvefsProcess first(TransportKind::kDev);
  first.start();
  VarvefsProcess second(TransportKind::kDev);
  second.options().mountpoint = first.mountpoint();
  EXPECT_EQ(second.start_and_wait(), error_code_to_exit_status(ErrorCode::kBusy));
  EXPECT_NE(second.log().find("another varvefs has the mount point"), std::string::npos)
      << second.log();
  EXPECT_TRUE(fs::find_mount(first.mountpoint()));
}

TEST(FsDaemonTest, AKilledOneIsFollowedByTheNextAlsoWhereItsRunDirectoryIsASymlink) {
  VarvefsProcess varvefs(TransportKind::kDev, SharedImage::get().store_directory);
  const std::string real = varvefs.scratch() + "/real";
  std::filesystem::create_directory(real);
  std::filesystem::create_symlink(real, varvefs.options().run_directory);
  varvefs.start();
  EXPECT_TRUE(fs::find_mount(real + "/mnt"));
  EXPECT_EQ(varvefs.log().find("warning"), std::string::npos) << varvefs.log();
  varvefs.kill();
  varvefs.start();
  ControlClient client = varvefs.connect();
  const std::string tree = VarvefsProcess::tree_of(varvefs.attach(client, "app:v1"));
  EXPECT_EQ(compare_trees(SharedImage::get().source, tree), std::vector<std::string>());
  EXPECT_EQ(varvefs.stop(), 0);
  EXPECT_FALSE(fs::find_mount(real + "/mnt"));
}

TEST(FsDaemonTest, UnmountsWhereverItsRunDirectoryWasMovedTo) {
  for (const bool lingers : {true, false}) {
    VarvefsProcess varvefs(TransportKind::kDev);
    if (lingers) varvefs.options().linger_s = 0;
    varvefs.start();
    const std::string elsewhere = varvefs.scratch() + "/elsewhere";
    {
      ControlClient keeps_it_alive = varvefs.connect();
      ASSERT_TRUE(keeps_it_alive.get("/v1/status"));
      std::filesystem::rename(varvefs.options().run_directory, elsewhere);
    }
    EXPECT_TRUE(fs::find_mount(elsewhere + "/mnt"));
    EXPECT_EQ(lingers ? varvefs.wait() : varvefs.stop(), 0);
    EXPECT_FALSE(fs::find_mount(elsewhere + "/mnt")) << varvefs.log();
  }
}

TEST(FsDaemonTest, EndsByItselfWhenItsLingerTimeIsOver) {
  VarvefsProcess varvefs(TransportKind::kDev);
  varvefs.options().linger_s = 0;
  EXPECT_EQ(varvefs.start_and_wait(), 0);
  EXPECT_FALSE(fs::find_mount(varvefs.mountpoint()));
}

TEST(FsDaemonTest, ASignalWhileItStartsLeavesNoMount) {
  int ended_count = 0;
  for (int delay_us = 0; ended_count < 3; delay_us += 200) {
    ASSERT_LT(delay_us, 1'000'000);
    VarvefsProcess varvefs(TransportKind::kAuto);
    varvefs.set_child_setup([delay_us] {
      const pid_t daemon = getpid();
      if (fork() != 0) return;
      usleep(static_cast<useconds_t>(delay_us));
      kill(daemon, SIGTERM);
      _exit(0);
    });
    // Before it begins to start the signal ends it as any process; later it ends by itself.
    if (varvefs.start_and_wait() == 0) ++ended_count;
    EXPECT_FALSE(fs::find_mount(varvefs.mountpoint())) << delay_us << " us: " << varvefs.log();
  }
}

TEST(FsDaemonTest, WhoeverConnectsToOneThatEndsIsServed) {
  for (const TransportKind transport : available_transports()) {
    VarvefsProcess varvefs(transport);
    varvefs.options().linger_s = 0;
    varvefs.start();
    for (;;) {
      auto client = ControlClient::connect(varvefs.options().run_directory + "/control.sock");
      if (!client) break;
      const auto answer = client->get("/v1/status");
      ASSERT_TRUE(answer) << answer.error().to_string();
      EXPECT_TRUE(fs::find_mount(varvefs.mountpoint()));
      client = fail(ErrorCode::kUnavailable, "");
      // It looks around once a second, and must not meet a client each time.
      std::this_thread::sleep_for(std::chrono::microseconds(300));
    }
    EXPECT_EQ(varvefs.wait(), 0) << varvefs.log();
    EXPECT_FALSE(fs::find_mount(varvefs.mountpoint()));
  }
}

TEST(FsDaemonTest, DoesNotEndWhileADetachedLayerIsInUse) {
  VarvefsProcess varvefs(TransportKind::kDev, SharedImage::get().store_directory);
  varvefs.options().linger_s = 0;
  varvefs.start();
  UniqueFd mount;
  {
    ControlClient client = varvefs.connect();
    mount = std::move(varvefs.attach(client, "app:v1", "default", true).fds.at(0));
  }
  // Longer than it looks around.
  std::this_thread::sleep_for(std::chrono::milliseconds(2500));
  EXPECT_TRUE(open_file_at(mount.get(), "large/text", O_RDONLY));
  EXPECT_EQ(transport_of(varvefs), "dev");
  mount.reset();
  EXPECT_EQ(varvefs.wait(), 0) << varvefs.log();
  EXPECT_FALSE(fs::find_mount(varvefs.mountpoint()));
}

TEST(FsDaemonTest, MountsThroughLoopDevicesWhereTheKernelMountsNoFiles) {
  const SharedImage& shared = SharedImage::get();
  VarvefsProcess varvefs(TransportKind::kDev, shared.store_directory);
  varvefs.options().mount_with_loop_devices = true;
  varvefs.start();
  ControlClient client = varvefs.connect();
  const auto answer = varvefs.attach(client, "app:v1", "default", true);
  const std::string mounted = "/proc/self/fd/" + std::to_string(answer.fds.at(0).get());
  EXPECT_EQ(compare_trees(shared.source, mounted + "/."), std::vector<std::string>());
}

TEST(FsDaemonTest, KeepsMountsAttachedWhereTheKernelClonesNoDetachedOnes) {
  const SharedImage& shared = SharedImage::get();
  VarvefsProcess varvefs(TransportKind::kDev, shared.store_directory);
  varvefs.options().keep_mounts_attached = true;
  varvefs.start();
  for (int i = 0; i < 2; ++i) {
    ControlClient client = varvefs.connect();
    const auto answer = varvefs.attach(client, "app:v1", "default", true);
    const std::string mounted = "/proc/self/fd/" + std::to_string(answer.fds.at(0).get());
    EXPECT_EQ(compare_trees(shared.source, mounted + "/."), std::vector<std::string>());
  }
}

TEST(FsDaemonTest, ReadersThroughALoopDeviceDoNotWaitForEachOtherAndCanBeKilled) {
  VarvefsProcess varvefs(TransportKind::kDev, SharedImage::get().store_directory);
  varvefs.options().mount_with_loop_devices = true;
  varvefs.start();
  ControlClient client = varvefs.connect();
  const auto answer = varvefs.attach(client, "app:v1", "default", true);
  const UniqueFd file = open_file_at(answer.fds.at(0).get(), "large/noise", O_RDONLY).value();
  ASSERT_EQ(posix_fadvise(file.get(), 0, 0, POSIX_FADV_RANDOM), 0);
  varvefs.switches().hangs = true;
  const pid_t victim = fork();
  if (victim == 0) {
    char byte;
    _exit(pread(file.get(), &byte, 1, off_t{5} << 19) == 1 ? 0 : 1);
  }
  std::vector<std::thread> readers;
  for (const off_t offset : {off_t{0}, off_t{1} << 20, off_t{2} << 20}) {
    readers.emplace_back([&file, offset] {
      char byte;
      EXPECT_EQ(pread(file.get(), &byte, 1, offset), 1);
    });
  }
  const auto patience = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (varvefs.switches().hanging_reads < 4 && std::chrono::steady_clock::now() < patience) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_EQ(varvefs.switches().hanging_reads, 4u);
  kill(victim, SIGKILL);
  pid_t ended = 0;
  while (ended == 0 && std::chrono::steady_clock::now() < patience) {
    ended = waitpid(victim, nullptr, WNOHANG);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_EQ(ended, victim) << "a reader of a store that hangs cannot be killed";
  varvefs.switches().hangs = false;
  for (std::thread& reader : readers) reader.join();
  if (ended == 0) waitpid(victim, nullptr, 0);
}

TEST(FsDaemonTest, TheHostSeesNoMountButTheOne) {
  const auto mount_count = [] {
    const Bytes text = read_file("/proc/self/mountinfo", 64 << 20).value();
    size_t count = 0;
    for (size_t at = 0; (at = as_text(text).find("varve-fs-", at)) != std::string_view::npos;
         ++at) {
      ++count;
    }
    return count;
  };
  VarvefsProcess varvefs(TransportKind::kDev, SharedImage::get().store_directory);
  const size_t before = mount_count();
  varvefs.start();
  ControlClient client = varvefs.connect();
  varvefs.attach(client, "app:v1", "default", true);
  EXPECT_EQ(mount_count(), before + 1);
}

// Its only child, of whichever thread.
pid_t helper_of(const VarvefsProcess& varvefs) {
  const std::string tasks = "/proc/" + std::to_string(varvefs.pid()) + "/task";
  for (const auto& task : std::filesystem::directory_iterator(tasks)) {
    const Bytes children = read_file(task.path().string() + "/children", 4096).value();
    if (!children.empty()) return std::stoi(std::string(as_text(children)));
  }
  return 0;
}

TEST(FsDaemonTest, AHelperThatWasKilledIsReplaced) {
  for (const TransportKind transport : available_transports()) {
    for (const bool keeps_attached : {false, true}) {
      VarvefsProcess varvefs(transport, SharedImage::get().store_directory);
      varvefs.options().keep_mounts_attached = keeps_attached;
      varvefs.start();
      ControlClient client = varvefs.connect();
      for (const char* domain : {"first", "second", "third"}) {
        const auto answer = varvefs.attach(client, "app:v1", domain, true);
        EXPECT_TRUE(open_file_at(answer.fds.at(0).get(), "large/text", O_RDONLY));
        const pid_t helper = helper_of(varvefs);
        ASSERT_GT(helper, 0);
        ASSERT_EQ(kill(helper, SIGKILL), 0);
      }
      EXPECT_NE(varvefs.log().find("starting the mount helper anew"), std::string::npos);
      varvefs.attach(client, "app:v1", "fourth", true);
      const pid_t helper = helper_of(varvefs);
      ASSERT_GT(helper, 0);
      pollfd end{static_cast<int>(syscall(SYS_pidfd_open, helper, 0)), POLLIN, 0};
      const UniqueFd pidfd(end.fd);
      ASSERT_TRUE(pidfd);
      varvefs.kill();
      EXPECT_EQ(poll(&end, 1, 20'000), 1) << "it outlives its daemon";
    }
  }
}

TEST(FsDaemonTest, ItsHelperHoldsNoOutputOfWhoeverStartedIt) {
  VarvefsProcess varvefs(TransportKind::kDev);
  int output[2];
  ASSERT_EQ(pipe2(output, O_CLOEXEC), 0);
  varvefs.set_child_setup([&] {
    dup2(output[1], STDOUT_FILENO);
    dup2(output[1], STDERR_FILENO);
  });
  varvefs.start();
  const std::string fds = "/proc/" + std::to_string(helper_of(varvefs)) + "/fd";
  for (const auto& fd : std::filesystem::directory_iterator(fds)) {
    EXPECT_FALSE(std::filesystem::read_symlink(fd).string().starts_with("pipe:")) << fd;
  }
  close(output[0]);
  close(output[1]);
}

TEST(FsDaemonTest, AnUnmountFromOutsideEndsIt) {
  VarvefsProcess varvefs(TransportKind::kDev);
  varvefs.start();
  ASSERT_EQ(umount2(varvefs.mountpoint().c_str(), MNT_DETACH), 0);
  EXPECT_EQ(varvefs.wait(), 0);
  EXPECT_NE(varvefs.log().find("was unmounted"), std::string::npos) << varvefs.log();
}

}  // namespace
}  // namespace varve::test
