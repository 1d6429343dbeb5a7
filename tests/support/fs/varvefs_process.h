#pragma once

#include <sys/types.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string>

#include "base/temp_dir.h"
#include "fs/daemon.h"
#include "tests/support/fs/built_layer.h"
#include "tests/support/fs/control_client.h"

namespace varve::test {

/// What the store of a VarvefsProcess does, steered from the test: lies in memory that both
/// processes share.
struct StoreSwitches {
  std::atomic<bool> hangs{false};          ///< Reads of packs do not return while it is set.
  std::atomic<bool> only_other{false};     ///< Only in a store whose directory is called "other".
  std::atomic<bool> hangs_all{false};      ///< Nothing that may block returns while it is set.
  std::atomic<bool> is_slow{false};        ///< Each read of a pack takes 20 ms.
  std::atomic<uint64_t> pack_reads{0};     ///< Range reads of packs so far.
  std::atomic<uint64_t> hanging_reads{0};  ///< Those that hang now.
};

/// A varvefs that runs as a child of the test, with a store that can be made to fail. The test
/// process itself never serves the mount, so nothing it does can wait for itself. Everything is
/// gone when the object is.
class VarvefsProcess {
 public:
  /// Makes the directories, and an empty store unless one is given; nothing runs yet.
  explicit VarvefsProcess(fs::TransportKind transport, const std::string& store_directory = "");
  /// Stops it; a status other than 0 fails the test.
  ~VarvefsProcess();
  VarvefsProcess(const VarvefsProcess&) = delete;
  VarvefsProcess& operator=(const VarvefsProcess&) = delete;

  /// Of the next start().
  fs::DaemonOptions& options() { return options_; }
  /// Runs in the child before the daemon does.
  void set_child_setup(std::function<void()> setup) { child_setup_ = std::move(setup); }

  /// Forks and waits until the control socket answers. Aborts when it does not.
  void start();
  /// Starts it and expects that it ends by itself; returns its exit status.
  int start_and_wait();
  /// SIGTERM, and waits. The exit status; 128 + n for a signal.
  int stop();
  /// Waits for the end of one that ends by itself; its exit status.
  int wait();
  /// SIGKILL.
  void kill();
  bool is_running() const { return pid_ > 0; }
  pid_t pid() const { return pid_; }

  chunkstore::Store& store() { return *store_; }
  const std::string& store_directory() const { return store_directory_; }
  std::string scratch() const { return directory_.path(); }
  std::string mountpoint() const { return options_.run_directory + "/mnt"; }
  StoreSwitches& switches() { return *switches_; }
  /// What it logged since it was made.
  std::string log() const;

  ControlClient connect();
  /// Attaches `image` (a ref) over `client`; aborts when that fails.
  ControlClient::Answer attach(ControlClient& client, const std::string& image,
                               const std::string& domain = "default", bool mounts = false);
  /// `tree` and `path` of layer `index` of an attach.
  static std::string tree_of(const ControlClient::Answer& answer, size_t index = 0);
  static std::string image_of(const ControlClient::Answer& answer, size_t index = 0);

 private:
  int run_child();
  static int exit_status(int wait_status);

  TempDir directory_;
  std::string store_directory_;
  std::shared_ptr<chunkstore::Store> store_;
  fs::DaemonOptions options_;
  std::function<void()> child_setup_;
  StoreSwitches* switches_;
  pid_t pid_ = 0;
};

/// Both transports where the kernel has the ring, else the one; prints what is left out and why.
std::vector<fs::TransportKind> available_transports();

/// Turns the ring on where it is off (it stays on). False when the kernel has none.
bool enable_ring();

/// "ring" or "dev", for the names of parameterised tests.
std::string transport_test_name(fs::TransportKind transport);

}  // namespace varve::test
