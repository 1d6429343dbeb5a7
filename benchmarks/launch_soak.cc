// Many launches in a row leave the machine as it was: mounts, cgroups, processes and directories
// are compared before and after, and what changed is printed.
//
//   launch_soak --runs N --run-dir DIR --state-dir DIR -- COMMAND...
//
// COMMAND is a whole `varve run` command line with the same two directories, and a varvefs serves
// RUN-DIR. The first run counts as well. JSON goes to standard output; the exit status is 1 when
// anything is left. Nothing else may start sandboxes meanwhile.
#include <dirent.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"

namespace {

namespace json = boost::json;
using Snapshot = std::map<std::string, std::set<std::string>>;

std::set<std::string> list(const std::string& path) {
  std::set<std::string> names;
  const std::unique_ptr<DIR, int (*)(DIR*)> stream(::opendir(path.c_str()), ::closedir);
  if (!stream) return names;
  while (const dirent* entry = ::readdir(stream.get())) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.insert(name);
  }
  return names;
}

std::set<std::string> lines(const std::string& path) {
  std::set<std::string> result;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) result.insert(line);
  return result;
}

/// varve's own processes and the launched program; those of another run directory are not ours.
std::set<std::string> processes(const std::string& run_dir) {
  std::set<std::string> result;
  for (const std::string& pid : list("/proc")) {
    if (pid.find_first_not_of("0123456789") != std::string::npos) continue;
    const auto name = lines("/proc/" + pid + "/comm");
    const auto command_line = lines("/proc/" + pid + "/cmdline");
    if (name.empty() || command_line.empty()) continue;
    const bool is_ours = *name.begin() == "varve-init" || *name.begin() == "true" ||
                         (name.begin()->starts_with("varve") &&
                          command_line.begin()->find(run_dir) != std::string::npos);
    if (is_ours) result.insert(pid + " " + *name.begin());
  }
  return result;
}

Snapshot snapshot(const std::string& run_dir, const std::string& state_dir) {
  Snapshot state;
  state["mounts"] = lines("/proc/self/mountinfo");
  // Sandboxes of a run directory carry its identity in their groups' names.
  struct stat pool {};
  (void)::stat((run_dir + "/sandboxes").c_str(), &pool);
  const std::string prefix =
      "varve-" + std::to_string(pool.st_dev) + "-" + std::to_string(pool.st_ino) + "-";
  for (const char* hierarchy : {"", "/memory", "/cpu", "/pids", "/freezer", "/unified"}) {
    for (const std::string& name : list(std::string("/sys/fs/cgroup") + hierarchy)) {
      if (name == "varve" || name.starts_with(prefix)) {
        state["cgroups"].insert(std::string(hierarchy) + "/" + name);
      }
    }
  }
  state["processes"] = processes(run_dir);
  state["run directory"] = list(run_dir);
  // The directory of the slots is part of a run directory, like varvefs' socket.
  state["run directory"].erase("sandboxes");
  state["slots"] = list(run_dir + "/sandboxes");
  state["state directory"] = list(state_dir);
  return state;
}

int launch(const std::vector<char*>& argv) {
  pid_t pid;
  if (::posix_spawnp(&pid, argv[0], nullptr, nullptr, argv.data(), environ) != 0) return -1;
  int status = -1;
  ::waitpid(pid, &status, 0);
  return status;
}

}  // namespace

int main(int argc, char** argv) {
  int runs = 2000;
  std::string run_dir, state_dir;
  int at = 1;
  for (; at + 1 < argc && std::string(argv[at]) != "--"; at += 2) {
    const std::string name = argv[at];
    if (name == "--runs") runs = std::atoi(argv[at + 1]);
    if (name == "--run-dir") run_dir = argv[at + 1];
    if (name == "--state-dir") state_dir = argv[at + 1];
  }
  std::vector<char*> command(argv + std::min(at + 1, argc), argv + argc);
  if (command.empty() || run_dir.empty() || state_dir.empty() || runs < 1) {
    std::fprintf(stderr,
                 "usage: launch_soak --runs N --run-dir DIR --state-dir DIR -- COMMAND...\n");
    return 2;
  }
  command.push_back(nullptr);
  const Snapshot before = snapshot(run_dir, state_dir);
  const uint64_t start = varve::monotonic_ns();
  int failed = 0;
  for (int i = 0; i < runs; ++i) failed += launch(command) != 0;
  const double seconds = static_cast<double>(varve::monotonic_ns() - start) / 1e9;
  const Snapshot after = snapshot(run_dir, state_dir);

  json::object left, gone;
  for (const auto& [what, names] : after) {
    const auto found = before.find(what);
    const std::set<std::string> old =
        found == before.end() ? std::set<std::string>() : found->second;
    json::array more, fewer;
    for (const std::string& name : names) {
      if (!old.contains(name)) more.emplace_back(name);
    }
    for (const std::string& name : old) {
      if (!names.contains(name)) fewer.emplace_back(name);
    }
    if (!more.empty()) left[what] = std::move(more);
    if (!fewer.empty()) gone[what] = std::move(fewer);
  }
  const bool clean = left.empty() && gone.empty() && failed == 0;
  std::printf("%s\n", json::serialize(json::object{{"benchmark", "launch_soak"},
                                                   {"runs", runs},
                                                   {"failed", failed},
                                                   {"a_second", runs / seconds},
                                                   {"left", left},
                                                   {"gone", gone},
                                                   {"clean", clean}})
                          .c_str());
  return clean ? 0 : 1;
}
