// Launch rates beside a peer and beside the floor, interleaved in one run:
//  - launch_floor: the bare system calls (see launch_floor.c), and again each launch by a program
//    that is started for it and removes what it made, as the others are and do;
//  - varve run, from its start to its end, with varvefs up;
//  - crun run, as `crun spec` configures it and again with varve's system call list, as container
//    engines give it one. With the same namespaces (user and net among them), id-mapped overlay and
//    cgroups. The overlay is mounted before and unmounted after each, as a container engine does,
//    and counts. On hybrid cgroup hosts crun needs /sys/fs/cgroup/unified out of its sight.
//
// Blocks of each follow one another, `rounds` times; JSON goes to standard output. Uppers of all
// three lie in --upper. Needs root and an image that varvefs in --run-dir can attach.
#include <fcntl.h>
#include <linux/securebits.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sys/fsuid.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/file_io.h"
#include "base/mount_api.h"
#include "base/remove_tree.h"
#include "guard/seccomp_policy.h"

namespace {

namespace json = boost::json;
using namespace varve;
using Samples = std::vector<uint64_t>;

constexpr uint32_t kFirstHostId = 0x7e00'0000;

[[noreturn]] void die(const std::string& what) {
  std::fprintf(stderr, "launch_bench: %s: %s\n", what.c_str(), std::strerror(errno));
  std::_Exit(1);
}
template <class T>
T need(Result<T> result) {
  if (!result) {
    std::fprintf(stderr, "launch_bench: %s\n", result.error().to_string().c_str());
    std::_Exit(1);
  }
  return std::move(*result);
}
void need(Status status) {
  if (status) return;
  std::fprintf(stderr, "launch_bench: %s\n", status.error().to_string().c_str());
  std::_Exit(1);
}

struct Options {
  std::string varve, floor, crun = "crun", image_file, image, run_dir, store, upper;
  std::string program = "/bin/true";
  std::vector<int> parallel{1, 16};
  int rounds = 10;
  int block = 20;
};

void spawn_and_wait(const std::vector<std::string>& words) {
  std::vector<char*> argv;
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  pid_t pid;
  if (::posix_spawnp(&pid, argv[0], nullptr, nullptr, argv.data(), environ) != 0) die(words[0]);
  int status;
  if (::waitpid(pid, &status, 0) != pid || status != 0) {
    std::fprintf(stderr, "launch_bench: %s ended with wait status %d\n", words[0].c_str(), status);
    std::_Exit(1);
  }
}

/// Runs `launch` `block` times in each of `parallel` processes after `prepare`; all begin together.
/// @param wall_ns  Gets the time from the common start to the last end.
Samples run_workers(int parallel, int block, const std::function<void(int)>& prepare,
                    const std::function<void(int, int)>& launch, uint64_t* wall_ns) {
  int results[2], gate[2], ready[2];
  if (::pipe2(results, O_CLOEXEC) || ::pipe2(gate, O_CLOEXEC) || ::pipe2(ready, O_CLOEXEC))
    die("pipe");
  for (int worker = 0; worker < parallel; ++worker) {
    const pid_t pid = ::fork();
    if (pid < 0) die("fork");
    if (pid != 0) continue;
    ::close(gate[1]);
    prepare(worker);
    char byte = 0;
    if (::write(ready[1], &byte, 1) != 1) die("ready");
    if (::read(gate[0], &byte, 1) != 0) die("gate");
    for (int i = 0; i < block; ++i) {
      const uint64_t start = monotonic_ns();
      launch(worker, i);
      const uint64_t elapsed = monotonic_ns() - start;
      if (::write(results[1], &elapsed, sizeof elapsed) != sizeof elapsed) die("result");
    }
    std::_Exit(0);
  }
  char byte;
  for (int worker = 0; worker < parallel; ++worker) {
    if (::read(ready[0], &byte, 1) != 1) die("waiting for workers");
  }
  const uint64_t start = monotonic_ns();
  for (const int fd : {gate[0], gate[1], results[1], ready[0], ready[1]}) ::close(fd);
  Samples samples;
  uint64_t sample;
  while (::read(results[0], &sample, sizeof sample) == sizeof sample) samples.push_back(sample);
  *wall_ns += monotonic_ns() - start;
  ::close(results[0]);
  for (int worker = 0; worker < parallel; ++worker) {
    int status;
    if (::wait(&status) < 0 || status != 0) std::_Exit(1);
  }
  return samples;
}

/// The floor times itself: its process' start and its EROFS mount are not part of a launch, unless
/// it is `by_process`: then a start of its program is.
Samples run_floor(const Options& options, int parallel, bool by_process) {
  std::string command = options.floor + " --image " + options.image_file + " --upper " +
                        options.upper + " --runs " + std::to_string(options.block) +
                        " --parallel " + std::to_string(parallel) + " --process " +
                        (by_process ? "1" : "0") + " -- " + options.program;
  std::FILE* output = ::popen(command.c_str(), "r");
  if (output == nullptr) die("popen");
  Samples samples;
  unsigned long long sample;
  while (std::fscanf(output, "%llu", &sample) == 1) samples.push_back(sample);
  if (::pclose(output) != 0) die(command);
  return samples;
}

Samples run_varve(const Options& options, int parallel, uint64_t* wall_ns) {
  std::vector<std::string> words{options.varve,   "run",         "--run-dir",
                                 options.run_dir, "--state-dir", options.upper};
  if (!options.store.empty()) words.insert(words.end(), {"--store", options.store});
  words.insert(words.end(), {options.image, "--", options.program});
  return run_workers(
      parallel, options.block, [](int) {}, [&words](int, int) { spawn_and_wait(words); }, wall_ns);
}

/// `crun spec`'s own configuration, with user and cgroup namespaces, the program, a pids limit as
/// varve has one, and without the cgroup mount, which a hybrid host cannot give it. `crun spec` has
/// no system call filter, to the peer's advantage; with `filter` it gets varve's list.
std::string crun_config(const Options& options, const std::string& id, const std::string& spec,
                        bool filter) {
  json::object config = json::parse(spec).as_object();
  json::object& process = config["process"].as_object();
  process["terminal"] = false;
  process["args"] = json::array{options.program};
  config["root"] = json::object{{"path", "rootfs"}};
  json::array mounts;
  for (const json::value& mount : config["mounts"].as_array()) {
    if (mount.at("type").as_string() != "cgroup") mounts.push_back(mount);
  }
  config["mounts"] = std::move(mounts);
  json::object& sandbox = config["linux"].as_object();
  for (const char* type : {"user", "cgroup"}) {
    sandbox["namespaces"].as_array().push_back(json::object{{"type", type}});
  }
  const json::array ids{
      json::object{{"containerID", 0}, {"hostID", kFirstHostId}, {"size", 65536}}};
  sandbox["uidMappings"] = ids;
  sandbox["gidMappings"] = ids;
  sandbox["cgroupsPath"] = "/varve-bench-" + id;
  sandbox["resources"] = json::object{{"pids", json::object{{"limit", 4096}}}};
  if (filter) {
    const auto allowed = guard::allowed_calls();
    json::array names(allowed.begin(), allowed.end());
    for (const char* name : {"clone", "socket", "socketpair", "ioctl", "prctl"}) {
      names.emplace_back(name);
    }
    sandbox["seccomp"] = json::object{
        {"defaultAction", "SCMP_ACT_ERRNO"},
        {"syscalls",
         json::array{json::object{{"names", std::move(names)}, {"action", "SCMP_ACT_ALLOW"}}}}};
  }
  return json::serialize(config);
}

/// A user namespace with the peer's id map; the process that made it ends.
UniqueFd make_user_namespace() {
  int gate[2];
  if (::pipe2(gate, O_CLOEXEC) != 0) die("pipe");
  const pid_t pid = ::fork();
  if (pid < 0) die("fork");
  if (pid == 0) {
    if (::unshare(CLONE_NEWUSER) != 0) die("unshare");
    char byte = 0;
    if (::write(gate[1], &byte, 1) != 1) die("gate");
    ::pause();
    std::_Exit(0);
  }
  char byte;
  if (::read(gate[0], &byte, 1) != 1) die("gate");
  const std::string directory = "/proc/" + std::to_string(pid);
  const std::string map = "0 " + std::to_string(kFirstHostId) + " 65536\n";
  for (const char* file : {"/uid_map", "/gid_map"}) {
    const UniqueFd fd = need(open_file(directory + file, O_WRONLY));
    need(write_all(fd.get(), as_bytes(map)));
  }
  UniqueFd result = need(open_file(directory + "/ns/user", O_RDONLY));
  ::kill(pid, SIGKILL);
  ::waitpid(pid, nullptr, 0);
  ::close(gate[0]);
  ::close(gate[1]);
  return result;
}

/// What one worker of the peer needs; made before the clock runs.
struct CrunWorker {
  std::string id, bundle;
  UniqueFd user_namespace;
};

void prepare_crun(const Options& options, CrunWorker& worker, int index, bool filter) {
  need(unshare_mounts());
  if (::umount2("/sys/fs/cgroup/unified", MNT_DETACH) != 0 && errno != ENOENT && errno != EINVAL)
    die("unified");
  if (::prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP, 0, 0, 0) != 0) die("securebits");
  worker.id = std::to_string(::getppid()) + "-" + std::to_string(index);
  worker.bundle = options.upper + "/bundle-" + worker.id;
  need(make_directories(worker.bundle + "/rootfs"));
  need(make_directories(worker.bundle + "/lower"));
  if (::chdir(worker.bundle.c_str()) != 0) die(worker.bundle);
  spawn_and_wait({options.crun, "spec"});
  const Bytes spec = need(read_file("config.json", 1 << 20));
  need(write_file_atomic(
      worker.bundle + "/config.json",
      as_bytes(crun_config(options, worker.id, std::string(as_text(spec)), filter))));
  worker.user_namespace = make_user_namespace();
  const UniqueFd lower =
      need(new_mount("erofs", {{"source", options.image_file}}, MOUNT_ATTR_RDONLY));
  need(move_mount_to(lower.get(), AT_FDCWD, worker.bundle + "/lower"));
}

void launch_crun(const Options& options, const CrunWorker& worker) {
  const std::string upper_path = worker.bundle + "/rw";
  if (::mkdir(upper_path.c_str(), 0700) != 0) die(upper_path);
  for (const char* name : {"/upper", "/work"}) {
    if (::mkdir((upper_path + name).c_str(), 0755) != 0) die(name);
  }
  {
    const UniqueFd lower = need(clone_mount(AT_FDCWD, worker.bundle + "/lower"));
    need(idmap_mount(lower.get(), worker.user_namespace.get()));
    const UniqueFd upper = need(clone_mount(AT_FDCWD, upper_path));
    need(idmap_mount(upper.get(), worker.user_namespace.get()));
    const UniqueFd context(::fsopen("overlay", FSOPEN_CLOEXEC));
    const UniqueFd u = need(open_file_at(upper.get(), "upper", O_PATH));
    const UniqueFd w = need(open_file_at(upper.get(), "work", O_PATH));
    if (::fsconfig(context.get(), FSCONFIG_SET_FD, "lowerdir+", nullptr, lower.get()) != 0 ||
        ::fsconfig(context.get(), FSCONFIG_SET_FD, "upperdir", nullptr, u.get()) != 0 ||
        ::fsconfig(context.get(), FSCONFIG_SET_FD, "workdir", nullptr, w.get()) != 0)
      die("overlay");
    need(set_mount_options(
        context.get(),
        {{"xino", "on"}, {"metacopy", "off"}, {"redirect_dir", "nofollow"}, {"volatile", ""}}));
    ::setfsuid(kFirstHostId);
    ::setfsgid(kFirstHostId);
    const UniqueFd root = need(create_mount(context.get(), 0));
    ::setfsuid(0);
    ::setfsgid(0);
    need(move_mount_to(root.get(), AT_FDCWD, worker.bundle + "/rootfs"));
  }
  spawn_and_wait({options.crun, "run", "--bundle", worker.bundle, worker.id});
  if (::umount2((worker.bundle + "/rootfs").c_str(), 0) != 0) die("umount");
  need(remove_tree(upper_path));
}

Samples run_crun(const Options& options, int parallel, bool filter, uint64_t* wall_ns) {
  CrunWorker worker;
  Samples samples = run_workers(
      parallel, options.block, [&](int index) { prepare_crun(options, worker, index, filter); },
      [&](int, int) { launch_crun(options, worker); }, wall_ns);
  for (int index = 0; index < parallel; ++index) {
    need(remove_tree(options.upper + "/bundle-" + std::to_string(::getpid()) + "-" +
                     std::to_string(index)));
  }
  return samples;
}

double quantile_ms(Samples& samples, double q) {
  std::sort(samples.begin(), samples.end());
  return static_cast<double>(
             samples[static_cast<size_t>(q * static_cast<double>(samples.size() - 1))]) /
         1e6;
}

/// CPU time of everything reaped so far. Kernel threads that tear namespaces down are not in it.
uint64_t children_cpu_usec() {
  rusage usage;
  ::getrusage(RUSAGE_CHILDREN, &usage);
  const auto usec = [](const timeval& t) {
    return static_cast<uint64_t>(t.tv_sec) * 1'000'000 + static_cast<uint64_t>(t.tv_usec);
  };
  return usec(usage.ru_utime) + usec(usage.ru_stime);
}

/// One of the programs compared: what it took so far.
struct Contender {
  Samples samples;
  uint64_t wall_ns = 0;
  uint64_t cpu_usec = 0;

  double rate() const {
    return static_cast<double>(samples.size()) * 1e9 / static_cast<double>(wall_ns);
  }
  json::object figures() {
    return {{"n", samples.size()},
            {"p10_ms", quantile_ms(samples, 0.1)},
            {"p50_ms", quantile_ms(samples, 0.5)},
            {"p95_ms", quantile_ms(samples, 0.95)},
            {"p99_ms", quantile_ms(samples, 0.99)},
            {"a_second", rate()},
            {"cpu_ms", static_cast<double>(cpu_usec) / 1e3 / static_cast<double>(samples.size())}};
  }
};

void run_block(Contender& contender, const std::function<Samples(uint64_t*)>& block) {
  const uint64_t cpu_before = children_cpu_usec();
  const Samples samples = block(&contender.wall_ns);
  contender.cpu_usec += children_cpu_usec() - cpu_before;
  contender.samples.insert(contender.samples.end(), samples.begin(), samples.end());
}

json::object run_level(const Options& options, int parallel) {
  Contender floor, floor_process, varve, crun, filtered;
  for (int round = 0; round < options.rounds; ++round) {
    for (const bool by_process : {false, true}) {
      run_block(by_process ? floor_process : floor, [&](uint64_t* wall_ns) {
        const Samples samples = run_floor(options, parallel, by_process);
        // Its workers do nothing else that counts.
        for (const uint64_t sample : samples) *wall_ns += sample / static_cast<uint64_t>(parallel);
        return samples;
      });
    }
    run_block(varve, [&](uint64_t* wall_ns) { return run_varve(options, parallel, wall_ns); });
    if (options.crun.empty()) continue;
    for (const bool filter : {false, true}) {
      run_block(filter ? filtered : crun,
                [&](uint64_t* wall_ns) { return run_crun(options, parallel, filter, wall_ns); });
    }
  }
  json::object level{{"parallel", parallel}};
  level["floor"] = floor.figures();
  level["floor_process"] = floor_process.figures();
  level["varve"] = varve.figures();
  level["varve_to_floor_process_p50"] =
      quantile_ms(varve.samples, 0.5) / quantile_ms(floor_process.samples, 0.5);
  level["varve_to_floor_p50"] = quantile_ms(varve.samples, 0.5) / quantile_ms(floor.samples, 0.5);
  level["varve_to_floor_p50_bound"] = 1.8;
  if (options.crun.empty()) return level;
  level["crun"] = crun.figures();
  level["crun_with_filter"] = filtered.figures();
  level["floor_process_to_crun_rate"] = floor_process.rate() / crun.rate();
  level["varve_to_crun_rate"] = varve.rate() / crun.rate();
  level["varve_to_crun_with_filter_rate"] = varve.rate() / filtered.rate();
  level["varve_to_crun_rate_bound"] = 3.0;
  return level;
}

Options parse(int argc, char** argv) {
  std::map<std::string, std::string> values;
  for (int i = 1; i + 1 < argc; i += 2) values[argv[i]] = argv[i + 1];
  Options options;
  const auto take = [&values](const char* name, std::string& to) {
    if (const auto found = values.find(name); found != values.end()) to = found->second;
  };
  take("--varve", options.varve);
  take("--floor", options.floor);
  take("--crun", options.crun);
  take("--image-file", options.image_file);
  take("--image", options.image);
  take("--run-dir", options.run_dir);
  take("--store", options.store);
  take("--upper", options.upper);
  take("--program", options.program);
  if (values.contains("--rounds")) options.rounds = std::atoi(values["--rounds"].c_str());
  if (values.contains("--block")) options.block = std::atoi(values["--block"].c_str());
  if (values.contains("--parallel")) options.parallel = {std::atoi(values["--parallel"].c_str())};
  if (argc % 2 == 0 || options.varve.empty() || options.floor.empty() ||
      options.image_file.empty() || options.image.empty() || options.run_dir.empty() ||
      options.upper.empty()) {
    std::fprintf(
        stderr,
        "usage: launch_bench --varve FILE --floor FILE --image-file FILE.erofs --image NAME\n"
        "         --run-dir DIR --upper DIR [--store URL] [--crun FILE | --crun '']\n"
        "         [--program PATH] [--rounds N] [--block N] [--parallel N]\n");
    std::exit(2);
  }
  return options;
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = parse(argc, argv);
  need(make_directories(options.upper, 0700));
  json::array levels;
  for (const int parallel : options.parallel) levels.push_back(run_level(options, parallel));
  utsname machine;
  ::uname(&machine);
  std::printf("%s\n", json::serialize(json::object{{"benchmark", "launch"},
                                                   {"kernel", machine.release},
                                                   {"cpus", ::sysconf(_SC_NPROCESSORS_ONLN)},
                                                   {"levels", levels}})
                          .c_str());
  return 0;
}
