#include "launcher/supervise.h"

#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>

#include "launcher/fd_message.h"
#include "launcher/terminal.h"

namespace varve::launcher {
namespace {

/// The loop's state: what has been learnt so far.
struct Watch {
  const Plan& plan;
  StartedSandbox& sandbox;
  const std::function<void()>& on_ended;
  UniqueFd signals;
  std::optional<TerminalRelay> relay;
  std::optional<Report> report;
  bool gone = false;
  bool told_to_end = false;
};

// How long the rest of a terminal's output may go unread after the end of a run that was told to
// end. Otherwise it waits for its reader, as any program does.
constexpr int kUnreadTimeoutMs = 1000;

void pass_signals_on(Watch& watch) {
  signalfd_siginfo info;
  while (::read(watch.signals.get(), &info, sizeof info) == sizeof info) {
    if (info.ssi_signo == SIGWINCH && watch.relay) {
      watch.relay->resize();
    } else {
      watch.sandbox.child.signal(static_cast<int>(info.ssi_signo));
      const auto signal = static_cast<int>(info.ssi_signo);
      watch.told_to_end |=
          signal == SIGTERM || signal == SIGINT || signal == SIGHUP || signal == SIGQUIT;
    }
  }
}

Status read_report(Watch& watch) {
  Report report;
  int fd = -1;
  size_t count = 1;
  const int error =
      receive_message(watch.sandbox.control.get(), &report, sizeof report, &fd, &count);
  UniqueFd master(count == 1 ? fd : -1);
  if (error == EPIPE || error == ECONNRESET) {
    watch.gone = true;
    return {};
  }
  if (error != 0) return fail_errno(error, "hearing from the sandbox");
  if (report.kind == ReportKind::kTerminal) {
    VARVE_ASSIGN(TerminalRelay relay,
                 TerminalRelay::create(std::move(master), STDIN_FILENO, STDOUT_FILENO));
    watch.relay.emplace(std::move(relay));
    // It was made with the size that the caller's terminal had before the image was there.
    watch.relay->resize();
    return {};
  }
  // The first one counts: a command that could not be executed ends as well.
  if (watch.report) return {};
  watch.report = report;
  watch.on_ended();
  return {};
}

/// True when there is something to do; false when an output that nobody reads ends the wait.
Result<bool> wait_for_events(Watch& watch, pollfd (&fds)[5]) {
  const auto* relay = watch.relay ? &*watch.relay : nullptr;
  fds[0] = {watch.gone ? -1 : watch.sandbox.control.get(), POLLIN, 0};
  fds[1] = {watch.signals.get(), POLLIN, 0};
  fds[2] = {relay != nullptr ? relay->master_fd() : -1,
            relay != nullptr ? relay->master_events() : short{0}, 0};
  // While its output waits a master that has hung up would only wake us.
  if (fds[2].events == 0) fds[2].fd = -1;
  fds[3] = {relay != nullptr && !watch.gone ? relay->input_fd() : -1, POLLIN, 0};
  fds[4] = {relay != nullptr ? relay->output_fd() : -1, POLLOUT, 0};
  for (;;) {
    const int count = ::poll(fds, 5, watch.gone && watch.told_to_end ? kUnreadTimeoutMs : -1);
    if (count > 0) return true;
    if (count == 0) return false;
    if (errno != EINTR) return fail_errno("waiting for the sandbox");
  }
}

Status watch_to_the_end(Watch& watch) {
  // With the report the first process goes by itself; only a terminal has more to say.
  while (watch.gone ? watch.relay && watch.relay->has_output() : !watch.report || watch.relay) {
    pollfd fds[5];
    VARVE_ASSIGN(const bool is_awake, wait_for_events(watch, fds));
    if (!is_awake) return {};
    if (fds[1].revents != 0) pass_signals_on(watch);
    if (fds[2].revents != 0) watch.relay->on_master(fds[2].revents);
    if (fds[3].revents != 0) watch.relay->on_input();
    if (fds[4].revents != 0) watch.relay->on_output();
    if (fds[0].revents != 0) VARVE_TRY(read_report(watch));
  }
  return {};
}

}  // namespace

sigset_t forwarded_signals() {
  sigset_t set;
  ::sigemptyset(&set);
  for (const int signal :
       {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGALRM, SIGWINCH, SIGCONT}) {
    ::sigaddset(&set, signal);
  }
  return set;
}

Result<Outcome> supervise(const Plan& plan, StartedSandbox& sandbox,
                          const std::function<void()>& on_ended) {
  const sigset_t forwarded = forwarded_signals();
  Watch watch{plan,         sandbox,
              on_ended,     UniqueFd(::signalfd(-1, &forwarded, SFD_CLOEXEC | SFD_NONBLOCK)),
              std::nullopt, std::nullopt};
  if (!watch.signals) return fail_errno("preparing to pass signals on");
  {
    const RawMode raw = RawMode::enter(plan.process.terminal ? STDIN_FILENO : -1);
    VARVE_TRY(watch_to_the_end(watch));
  }
  const int status = sandbox.child.wait();
  if (!watch.report) {
    return fail(
        ErrorCode::kCancelled,
        "the sandbox's first process was killed from outside" +
            (WIFSIGNALED(status) ? " (signal " + std::to_string(WTERMSIG(status)) + ")" : ""));
  }
  if (watch.report->kind == ReportKind::kSetupFailed) {
    return tl::unexpected<Error>(setup_error(plan, *watch.report));
  }
  Outcome outcome;
  outcome.ready_ns = watch.report->ready_ns;
  if (watch.report->kind == ReportKind::kExecFailed) {
    outcome.exec_errno = watch.report->errno_value;
  } else {
    outcome.wait_status = watch.report->wait_status;
  }
  return outcome;
}

}  // namespace varve::launcher
