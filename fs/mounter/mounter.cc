#include "fs/mounter/mounter.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "base/file_io.h"
#include "base/mount_api.h"
#include "fs/mounter/helper.h"
#include "fs/mounter/message.h"

namespace varve::fs {
namespace {

// A mount reads a few pages of local metadata: milliseconds, unless the machine is overloaded.
constexpr timeval kAnswerTimeout{10, 0};

}  // namespace

Result<std::unique_ptr<Mounter>> Mounter::start(const MounterOptions& options, LogSink log) {
  std::unique_ptr<Mounter> mounter(new Mounter(options, std::move(log)));
  VARVE_TRY(mounter->start_helper());
  return mounter;
}

Status Mounter::start_helper() {
  int sockets[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets))
    return fail_errno("socketpair");
  UniqueFd ours(sockets[0]);
  UniqueFd theirs(sockets[1]);
  if (setsockopt(ours.get(), SOL_SOCKET, SO_RCVTIMEO, &kAnswerTimeout, sizeof(kAnswerTimeout))) {
    return fail_errno("setsockopt");
  }
  const pid_t parent = getpid();
  // The signal comes when the thread ends that forked; what comes in any case is the socket's end.
  const bool is_main_thread = gettid() == parent;
  const pid_t helper = fork();
  if (helper < 0) return fail_errno("forking the mount helper");
  if (helper == 0) {
    if (is_main_thread) prctl(PR_SET_PDEATHSIG, SIGKILL);
    // The parent may have died before this call.
    if (getppid() != parent) _exit(0);
    ours.reset();
    _exit(mounter::run_helper(theirs.get(), options_));
  }
  theirs.reset();
  socket_ = std::move(ours);
  helper_ = helper;
  // The helper reports once whether it could set itself up.
  VARVE_ASSIGN(const mounter::Message ready, mounter::receive_message(socket_.get()));
  if (!ready.text.empty()) return fail(ready.error, ready.text);
  uses_loop_devices_ = ready.operation == mounter::kLoops;
  return {};
}

void Mounter::end_helper() {
  socket_.reset();
  if (helper_ <= 0) return;
  kill(helper_, SIGKILL);
  while (waitpid(helper_, nullptr, 0) < 0 && errno == EINTR) {
  }
  helper_ = 0;
}

Mounter::~Mounter() {
  end_helper();
}

Result<UniqueFd> Mounter::mount(const std::string& key) {
  std::lock_guard lock(mutex_);
  if (const auto original = originals_.find(key); original != originals_.end()) {
    return clone_mount(original->second.get(), "");
  }
  // Opened for the request only: a helper that kept it would keep the mount busy.
  VARVE_ASSIGN(UniqueFd root, open_file(options_.mountpoint, O_PATH | O_DIRECTORY));
  auto answer = request(mounter::kMount, key, std::move(root));
  if (!answer) return fail(std::move(answer).error(), "mounting the image of '" + key + "'");
  if (answer->operation != mounter::kOriginal) return std::move(answer->fd);
  VARVE_ASSIGN(UniqueFd clone, clone_mount(answer->fd.get(), ""));
  originals_.emplace(key, std::move(answer->fd));
  return clone;
}

UniqueFd Mounter::mount_at_once(const std::string& key) {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return {};
  const auto original = originals_.find(key);
  if (original == originals_.end()) return {};
  auto clone = clone_mount(original->second.get(), "");
  return clone ? std::move(*clone) : UniqueFd();
}

Status Mounter::drop(const std::string& key) {
  std::lock_guard lock(mutex_);
  if (originals_.erase(key) != 0) return {};
  auto dropped = request(mounter::kDrop, key, {});
  if (!dropped) return fail(std::move(dropped).error(), "unmounting the image of '" + key + "'");
  return {};
}

Result<mounter::Message> Mounter::request(char operation, const std::string& key, UniqueFd fd) {
  mounter::Message message;
  message.operation = operation;
  message.text = key;
  message.fd = std::move(fd);
  auto answer = exchange(message);
  if (!answer && answer.error().code() == ErrorCode::kUnavailable) {
    // Somebody killed it, or the kernel did for want of memory.
    log_(LogLevel::kWarning, "", "starting the mount helper anew: " + answer.error().to_string());
    end_helper();
    VARVE_TRY(start_helper());
    answer = exchange(message);
  }
  if (answer && !answer->text.empty()) return fail(answer->error, answer->text);
  return answer;
}

Result<mounter::Message> Mounter::exchange(mounter::Message& message) {
  message.sequence = next_sequence_++;
  VARVE_TRY(mounter::send_message(socket_.get(), message));
  for (;;) {
    VARVE_ASSIGN(mounter::Message answer, mounter::receive_message(socket_.get()));
    // Not the late answer to a request that was given up.
    if (answer.sequence == message.sequence) return answer;
  }
}

}  // namespace varve::fs
