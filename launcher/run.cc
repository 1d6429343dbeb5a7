#include "launcher/run.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "base/clock.h"
#include "base/file_io.h"
#include "launcher/control_client.h"
#include "launcher/empty_namespace.h"
#include "launcher/host_side.h"
#include "launcher/json_text.h"
#include "launcher/mount_command.h"
#include "launcher/options.h"
#include "launcher/run_stats.h"
#include "launcher/slot.h"
#include "launcher/supervise.h"
#include "launcher/terminal.h"
#include "launcher/varvefs_starter.h"

namespace varve::launcher {
namespace {

/// An image attached for this run, until the connection closes.
struct Attached {
  ControlClient client;
  ImageInfo image;
  std::vector<UniqueFd> mounts;
};

Status ask_for_image(ControlClient& client, const Spec& spec, bool mounts) {
  return client.send("POST", "/v1/attach",
                     to_json({.store = spec.store,
                              .image = spec.image,
                              .layers = spec.extra_layers,
                              .domain = spec.domain,
                              .mounts = mounts}));
}

Status take_image(Attached& attached, bool mounts) {
  VARVE_ASSIGN(ControlClient::Response response, attached.client.receive());
  VARVE_ASSIGN(attached.image, parse_image_info(response.body));
  attached.mounts = std::move(response.fds);
  if (mounts && attached.mounts.size() != attached.image.layers.size()) {
    return fail(ErrorCode::kCorruption,
                "varvefs gave " + std::to_string(attached.mounts.size()) + " mounts for " +
                    std::to_string(attached.image.layers.size()) + " layers");
  }
  drop_repeated_layers(attached.image.layers, attached.mounts);
  return mounts ? drop_hidden_layers(attached.image.layers, attached.mounts) : Status();
}

/// Leaves the namespace that this process made with varvefs, for the runs to come.
Status keep_empty_namespace(ControlClient& client) {
  VARVE_TRY(client.send("POST", "/v1/namespaces", keep_namespace_json(empty_namespace_name())));
  auto kept = client.receive();
  // Without it each run makes its own: a varvefs that cannot keep it is no reason to fail.
  if (!kept && kept.error().code() != ErrorCode::kNotFound &&
      kept.error().code() != ErrorCode::kUnsupported && kept.error().code() != ErrorCode::kBusy) {
    return tl::unexpected(std::move(kept).error());
  }
  return {};
}

/// What a run holds on the host, in the order in which it is made.
struct HostState {
  HostState(qos::CgroupHost cgroup_host, Slot own_slot, qos::SandboxCgroup own_cgroup)
      : cgroups(std::move(cgroup_host)), slot(std::move(own_slot)), cgroup(std::move(own_cgroup)) {}
  HostState(HostState&&) = default;
  HostState& operator=(HostState&&) = delete;
  ~HostState() { (void)undo(); }
  /// Removes everything. The slot, which is what the next run finds, goes when all else has.
  Status undo() {
    Status first = cgroup.remove();
    if (upper) {
      auto status = upper->remove();
      if (!status && first) first = std::move(status);
    }
    if (!first) {
      slot.leave();
      return first;
    }
    return slot.release();
  }

  qos::CgroupHost cgroups;
  Slot slot;
  qos::SandboxCgroup cgroup;
  std::optional<UpperDir> upper;
};

std::string kept_name(const Slot& slot) {
  return "kept-" + std::to_string(monotonic_ns()) + "-" + std::to_string(slot.number());
}

Status make_upper(const Spec& spec, HostState& host) {
  if (spec.rw_bytes_max) return {};
  const std::string name = spec.keep ? kept_name(host.slot) : host.slot.cgroup_name();
  // The record comes first: whatever happens next, the next run knows what to remove.
  if (!spec.keep) {
    auto recorded = host.slot.record_upper(spec.state_dir + "/" + name);
    if (!recorded) return fail(std::move(recorded).error(), "--state-dir");
  }
  VARVE_ASSIGN(UpperDir upper, in_context(UpperDir::create(spec.state_dir, name), "--state-dir"));
  host.upper.emplace(std::move(upper));
  return {};
}

Result<HostState> prepare_host(const Spec& spec, ToolIo& io) {
  VARVE_ASSIGN(qos::CgroupHost cgroups, qos::CgroupHost::begin_probe());
  VARVE_ASSIGN(SlotPool pool, SlotPool::open(spec.run_dir));
  if (pool.may_have_slots()) {
    VARVE_TRY(cgroups.finish_probe());
    for (const Error& error : pool.clean_up_dead(cgroups)) {
      std::fprintf(io.err, "varve: %s\n", error.to_string().c_str());
    }
  }
  VARVE_ASSIGN(Slot slot, std::move(pool).claim());
  VARVE_ASSIGN(qos::SandboxCgroup cgroup,
               qos::SandboxCgroup::create(cgroups, slot.cgroup_name(),
                                          {.memory_bytes_max = spec.memory_bytes_max,
                                           .cpu_milli_max = spec.cpu_milli_max,
                                           .pids_max = spec.pids_max}));
  HostState host(std::move(cgroups), std::move(slot), std::move(cgroup));
  VARVE_TRY(make_upper(spec, host));
  return host;
}

Status clean_up(const Spec& spec, HostState& host, ToolIo& io) {
  if (host.upper && spec.keep) {
    std::fprintf(io.err, "varve: written files are in %s/upper\n", host.upper->path().c_str());
    host.upper->keep();
  }
  return host.undo();
}

/// docker's conventions: what the command did, or why it was not even started.
int exit_status_of(const Plan& plan, const Outcome& outcome, ToolIo& io) {
  if (!outcome.wait_status) {
    const int reason = outcome.exec_errno;
    std::fprintf(
        io.err, "varve: %s\n",
        Error::from_errno(reason, "executing " + quoted(plan.process.argv[0])).to_string().c_str());
    return reason == ENOENT || reason == ENOTDIR ? kExitNotFound : kExitNotExecutable;
  }
  const int status = *outcome.wait_status;
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

/// The first process went without a word. When the kernel took it for want of memory, that is the
/// limit at work, as when it takes the command; anything else is a failure of ours.
Result<int> outcome_without_report(Error error, HostState& host, ToolIo& io) {
  if (error.code() != ErrorCode::kCancelled) return tl::unexpected<Error>(std::move(error));
  const auto usage = host.cgroup.usage();
  if (!usage || usage->oom_kill_count.value_or(0) == 0)
    return tl::unexpected<Error>(std::move(error));
  std::fprintf(io.err, "varve: the sandbox ran out of memory\n");
  return 128 + SIGKILL;
}

Result<UniqueFd> open_stats(const Spec& spec) {
  if (spec.stats_path.empty()) return UniqueFd();
  return in_context(open_file(spec.stats_path, O_WRONLY | O_CREAT | O_TRUNC), "--stats");
}

/// Blocks what is passed on to the command, from the time when there is somebody to pass it to, and
/// SIGPIPE: that nobody reads what is said here must not end the command.
Status block_signals() {
  sigset_t blocked = forwarded_signals();
  ::sigaddset(&blocked, SIGPIPE);
  if (::sigprocmask(SIG_BLOCK, &blocked, nullptr) != 0) return fail_errno("blocking signals");
  return {};
}

ChildContext make_context(const Plan& plan, std::span<char> command_line) {
  ChildContext context{.operations = plan.child_operations, .command_line = command_line};
  // The command gets the signal mask and the window as they were.
  (void)::sigprocmask(SIG_BLOCK, nullptr, &context.command_signals);
  context.window = window_of(STDIN_FILENO);
  return context;
}

/// Ends the process without closing what is open one by one. The end of its connection wakes
/// varvefs, which would take this CPU before the caller hears of the end.
[[noreturn]] void end_process(int exit_status) {
  std::fflush(nullptr);
  ::_exit(exit_status);
}

/// @return only what went wrong; otherwise it ends the process with the command's exit status.
Result<int> run_image(const Spec& spec, ToolIo& io, std::span<char> command_line) {
  RunStats::Times times{.start_ns = monotonic_ns()};
  VARVE_TRY(validate(spec));
  VARVE_ASSIGN(const UniqueFd stats_file, open_stats(spec));
  VARVE_ASSIGN(ControlClient client, connect_or_start_varvefs(spec.run_dir));
  Attached attached{.client = std::move(client), .image = {}, .mounts = {}};
  RunStats stats;
  if (stats_file) VARVE_TRY(stats.begin(attached.client));
  // varvefs works on the attach while this process makes its part, and then the child its own.
  VARVE_TRY(ask_for_image(attached.client, spec, true));
  VARVE_ASSIGN(HostState host, prepare_host(spec, io));
  HostInputs inputs{
      .upper_directory = host.upper ? host.upper->fd() : -1,
      .cgroup_into = host.cgroup.clone_into_fd(),
      .empty_namespace = open_kept_namespace(spec.run_dir, attached.client.peer_pid())};
  const bool makes_namespace = !inputs.empty_namespace;
  Plan plan = begin_plan(spec, host.upper ? host.upper->path() : "");
  ChildContext context = make_context(plan, command_line);
  SandboxStart start(plan, std::move(inputs), context);
  VARVE_TRY(start.begin());

  VARVE_TRY(host.cgroups.finish_probe());
  VARVE_TRY(host.cgroup.create_joined(host.cgroups));
  VARVE_TRY(take_image(attached, true));
  VARVE_TRY(finish_plan(plan, spec, attached.image, host.slot.number()));
  VARVE_TRY(block_signals());
  VARVE_ASSIGN(StartedSandbox sandbox,
               start.finish(std::move(attached.mounts), host.cgroup.join_fds()));
  if (makes_namespace) VARVE_TRY(keep_empty_namespace(attached.client));
  const auto ended = supervise(plan, sandbox, [&] {
    if (host.upper && !spec.keep) host.upper->remove_unwritten();
  });
  const auto conclude = [&]() -> Result<int> {
    if (!ended) return outcome_without_report(ended.error(), host, io);
    times.ready_ns = ended->ready_ns;
    times.exit_ns = monotonic_ns();
    const int exit_status = exit_status_of(plan, *ended, io);
    if (!stats_file) return exit_status;
    VARVE_ASSIGN(const qos::CgroupUsage usage, host.cgroup.usage());
    VARVE_ASSIGN(const std::string text,
                 stats.finish(attached.client, attached.image, times, usage, exit_status));
    auto written = write_all(stats_file.get(), as_bytes(text));
    if (!written) return fail(std::move(written).error(), quoted(spec.stats_path));
    return exit_status;
  };
  const Result<int> exit_status = conclude();
  // A set-up that failed has nothing of the command's to keep.
  const bool may_have_written = ended || ended.error().code() == ErrorCode::kCancelled;
  const Status cleaned = may_have_written ? clean_up(spec, host, io) : Status();
  if (!exit_status) return exit_status;
  VARVE_TRY(cleaned);
  end_process(*exit_status);
}

Result<int> print_plan(const Spec& spec, ToolIo& io) {
  VARVE_TRY(validate(spec));
  VARVE_ASSIGN(ControlClient client, connect_or_start_varvefs(spec.run_dir));
  Attached attached{.client = std::move(client), .image = {}, .mounts = {}};
  VARVE_TRY(ask_for_image(attached.client, spec, false));
  VARVE_TRY(take_image(attached, false));
  // A run takes whichever slot is free; the plan of the first one stands for all.
  Plan plan = begin_plan(spec, spec.state_dir + "/0");
  VARVE_TRY(finish_plan(plan, spec, attached.image, 0));
  if (std::fputs(plan_to_json(plan).c_str(), io.out) < 0 || std::fflush(io.out) != 0) {
    return fail_errno("printing the plan");
  }
  return 0;
}

int report(const Error& error, ToolIo& io) {
  std::fprintf(io.err, "varve: %s\n", error.to_string().c_str());
  return kExitVarveFailed;
}

/// What an ordinary user may not do first differs from host to host; that it takes root does not.
Error as_told_to_user(Error error) {
  return ::geteuid() == 0 ? std::move(error) : std::move(error).with_context("not root");
}

int print_usage(ToolIo& io) {
  std::fputs(usage().c_str(), io.out);
  return 0;
}

int run_command(const std::vector<std::string>& args, ToolIo& io, std::span<char> command_line) {
  auto spec = parse_run(args);
  if (!spec) return report(spec.error(), io);
  if (spec->help) return print_usage(io);
  auto result = spec->print_plan ? print_plan(*spec, io) : run_image(*spec, io, command_line);
  return result ? *result : report(as_told_to_user(std::move(result).error()), io);
}

int mount_command(const std::vector<std::string>& args, bool mounts, ToolIo& io) {
  const auto run = [&]() -> Status {
    VARVE_ASSIGN(const MountSpec spec, parse_mount(args, /*with_image=*/mounts));
    if (!spec.help) return mounts ? mount_image(spec) : unmount_image(spec);
    (void)print_usage(io);
    return {};
  };
  const Status status = run();
  if (status) return 0;
  (void)report(status.error(), io);
  return error_code_to_exit_status(status.error().code());
}

}  // namespace

int varve_main(const std::vector<std::string>& args, ToolIo& io, std::span<char> command_line) {
  const std::string command = args.empty() ? "" : args[0];
  const std::vector<std::string> rest(args.begin() + (args.empty() ? 0 : 1), args.end());
  if (command == "run") return run_command(rest, io, command_line);
  if (command == "mount" || command == "umount") {
    return mount_command(rest, /*mounts=*/command == "mount", io);
  }
  if (command == "--help" || command == "-h") return print_usage(io);
  if (command == "--version") {
    std::fprintf(io.out, "varve %s\n", VARVE_VERSION);
    return 0;
  }
  std::fputs(usage().c_str(), io.err);
  return kExitVarveFailed;
}

}  // namespace varve::launcher
