#include "tests/support/fs/varvefs_process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <new>
#include <thread>

#include "base/check.h"
#include "base/file_io.h"
#include "fs/spdlog_sink.h"
#include "tests/support/fault_store.h"

namespace varve::test {
namespace {

constexpr auto kPollPeriod = std::chrono::milliseconds(5);
constexpr auto kStartPatience = std::chrono::seconds(60);

std::shared_ptr<chunkstore::Store> with_switches(std::shared_ptr<chunkstore::Store> store,
                                                 StoreSwitches& switches) {
  const bool is_other = store->url().ends_with("/other");
  return std::make_shared<FaultStore>(
      std::move(store), [&switches, is_other](FaultStore::Op op, std::string_view key) -> Status {
        if (switches.hangs_all) {
          ++switches.hanging_reads;
          while (switches.hangs_all) std::this_thread::sleep_for(kPollPeriod);
          --switches.hanging_reads;
        }
        if (op != FaultStore::Op::kGetRange || !key.starts_with("packs/")) return {};
        if (switches.only_other && !is_other) return {};
        ++switches.pack_reads;
        if (switches.is_slow) std::this_thread::sleep_for(std::chrono::milliseconds(20));
        if (!switches.hangs) return {};
        ++switches.hanging_reads;
        while (switches.hangs) std::this_thread::sleep_for(kPollPeriod);
        --switches.hanging_reads;
        return {};
      });
}

}  // namespace

VarvefsProcess::VarvefsProcess(fs::TransportKind transport, const std::string& store_directory)
    : directory_(TempDir::create("varve-fs-", "/var/tmp").value()),
      store_directory_(store_directory.empty() ? directory_.path() + "/store" : store_directory),
      store_(chunkstore::open_store(store_directory_, true).value()) {
  void* shared = mmap(nullptr, sizeof(StoreSwitches), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  VARVE_CHECK(shared != MAP_FAILED);
  switches_ = new (shared) StoreSwitches;
  options_.transport = transport;
  options_.idle_s = 0;  // Tests see a detach when it happens, unless they ask for more.
  options_.run_directory = directory_.path() + "/run";
  options_.spool_directory = directory_.path();
}

VarvefsProcess::~VarvefsProcess() {
  switches_->hangs = false;
  switches_->hangs_all = false;
  if (pid_ > 0) {
    EXPECT_EQ(stop(), 0) << log();
  }
  // What a killed one left.
  while (umount2(mountpoint().c_str(), MNT_DETACH) == 0) {
  }
  munmap(switches_, sizeof(StoreSwitches));
}

int VarvefsProcess::run_child() {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  auto log = fs::make_spdlog_sink(directory_.path() + "/log");
  VARVE_CHECK(log.has_value());
  options_.open_store =
      [this](const std::string& url) -> Result<std::shared_ptr<chunkstore::Store>> {
    VARVE_ASSIGN(auto store, chunkstore::open_store(url, false));
    return with_switches(std::move(store), *switches_);
  };
  if (child_setup_) child_setup_();
  const auto ended = fs::run_daemon(options_, *log, [] {});
  if (!ended) {
    (*log)(fs::LogLevel::kError, "", ended.error().to_string());
    return error_code_to_exit_status(ended.error().code());
  }
  if (!*ended) _exit(0);
  return 0;
}

void VarvefsProcess::start() {
  std::fflush(nullptr);
  pid_ = fork();
  VARVE_CHECK_OP(pid_, >=, 0);
  // exit and not _exit: sanitizers report at exit.
  if (pid_ == 0) exit(run_child());
  const auto patience = MonotonicClock::now() + kStartPatience;
  while (!ControlClient::connect(options_.run_directory + "/control.sock")) {
    int status;
    const bool has_ended = waitpid(pid_, &status, WNOHANG) == pid_;
    if (has_ended || MonotonicClock::now() > patience) {
      std::fprintf(stderr, "varvefs did not start:\n%s\n", log().c_str());
      std::abort();
    }
    std::this_thread::sleep_for(kPollPeriod);
  }
}

int VarvefsProcess::start_and_wait() {
  std::fflush(nullptr);
  const pid_t child = fork();
  VARVE_CHECK_OP(child, >=, 0);
  if (child == 0) exit(run_child());
  int status = 0;
  VARVE_CHECK_OP(waitpid(child, &status, 0), ==, child);
  return exit_status(status);
}

int VarvefsProcess::exit_status(int wait_status) {
  return WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : 128 + WTERMSIG(wait_status);
}

int VarvefsProcess::stop() {
  ::kill(pid_, SIGTERM);
  return wait();
}

int VarvefsProcess::wait() {
  int status = 0;
  VARVE_CHECK_OP(waitpid(pid_, &status, 0), ==, pid_);
  pid_ = 0;
  return exit_status(status);
}

void VarvefsProcess::kill() {
  ::kill(pid_, SIGKILL);
  int status = 0;
  VARVE_CHECK_OP(waitpid(pid_, &status, 0), ==, pid_);
  pid_ = 0;
}

std::string VarvefsProcess::log() const {
  const auto text = read_file(directory_.path() + "/log", 64 << 20);
  return text ? std::string(as_text(*text)) : "";
}

ControlClient VarvefsProcess::connect() {
  auto client = ControlClient::connect(options_.run_directory + "/control.sock");
  must(client ? Status() : tl::unexpected(client.error()));
  return std::move(*client);
}

ControlClient::Answer VarvefsProcess::attach(ControlClient& client, const std::string& image,
                                             const std::string& domain, bool mounts) {
  auto answer = client.post("/v1/attach", {{"store", "file://" + store_directory_},
                                           {"image", image},
                                           {"domain", domain},
                                           {"mounts", mounts}});
  must(answer ? Status() : tl::unexpected(answer.error()));
  if (answer->status != 200) {
    std::fprintf(stderr, "attach: %s\n", boost::json::serialize(answer->body).c_str());
    std::abort();
  }
  return std::move(*answer);
}

std::string VarvefsProcess::tree_of(const ControlClient::Answer& answer, size_t index) {
  return answer.body.at("layers").at(index).at("tree").as_string().c_str();
}

std::string VarvefsProcess::image_of(const ControlClient::Answer& answer, size_t index) {
  return answer.body.at("layers").at(index).at("path").as_string().c_str();
}

bool enable_ring() {
  if (fs::probe_fuse_ring()) return true;
  const auto fd = open_file("/sys/module/fuse/parameters/enable_uring", O_WRONLY);
  return fd && write_all(fd->get(), as_bytes("Y")) && fs::probe_fuse_ring();
}

std::vector<fs::TransportKind> available_transports() {
  if (enable_ring()) return {fs::TransportKind::kDev, fs::TransportKind::kRing};
  std::printf("without the ring: %s\n", fs::probe_fuse_ring().error().to_string().c_str());
  return {fs::TransportKind::kDev};
}

std::string transport_test_name(fs::TransportKind transport) {
  return fs::transport_name(transport);
}

}  // namespace varve::test
