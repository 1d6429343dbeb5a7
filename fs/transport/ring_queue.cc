#include "fs/transport/ring_queue.h"

#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "base/check.h"
#include "fs/transport/loop_thread.h"
#include "fs/transport/payload_pool.h"

namespace varve::fs {
namespace {

constexpr size_t kHeaderBytes = 4096;
// user_data of the eventfd's read; entries are pointers, never 1.
constexpr uint64_t kWakeTag = 1;

// A queue keeps at least this many entries with the kernel, as long as it may grow.
constexpr size_t kWaitingCountMin = 2;

// Entries from this one on keep no more of their memory than this: only a crowd of readers whose
// store is slow needs so many, and not for long.
constexpr size_t kLargeEntryCountMax = 64;
constexpr size_t kSmallEntryBytes = 64 << 10;

}  // namespace

/// One slot of the ring: the buffers that the kernel fills and the request in them.
class RingQueue::Entry : public Request {
 public:
  Entry(RingQueue& queue, bool is_small)
      : queue_(queue),
        is_small_(is_small && queue.options_.payload_bytes > kSmallEntryBytes),
        payload_bytes_(queue.options_.payload_bytes),
        memory_(map_anonymous(kHeaderBytes + payload_bytes_)) {
    buffers_[0] = {memory_, sizeof(fuse::RingHeader)};
    buffers_[1] = {memory_ + kHeaderBytes, payload_bytes_};
  }
  ~Entry() override { unmap_anonymous(memory_, kHeaderBytes + payload_bytes_); }

  MutableByteView payload() override { return {memory_ + kHeaderBytes, payload_bytes_}; }
  // The ring carries no request of that kind; an empty answer keeps the entry in use.
  void finish_without_reply() override { complete(0, 0); }

  // Takes what the kernel put into the buffers.
  void take() {
    fuse::InHeader in;
    std::memcpy(&in, header().in_out, sizeof(in));
    commit_id_ = header().entry.commit_id;
    const size_t tail_bytes = std::min<size_t>(header().entry.payload_size, payload_bytes_);
    assign(in, {header().operation_in, sizeof(header().operation_in)},
           {memory_ + kHeaderBytes, tail_bytes});
  }
  // Puts the answer into the buffers; by the queue's thread.
  void write_answer() {
    fuse::OutHeader out{};
    out.length = static_cast<uint32_t>(sizeof(out) + answer_size_);
    out.error = answer_error_;
    out.unique = unique();
    std::memcpy(header().in_out, &out, sizeof(out));
    header().entry.payload_size = static_cast<uint32_t>(answer_size_);
    header().entry.flags = 0;
  }
  // What was answered has been copied by the kernel: gives back what a large answer took. The
  // beginning may hold the next request.
  void trim() {
    constexpr size_t kKeptBytes = kHeaderBytes + kSmallEntryBytes;
    (void)madvise(memory_ + kKeptBytes, payload_bytes_ - kSmallEntryBytes, MADV_DONTNEED);
  }
  bool wants_trim() const { return is_small_ && answer_size_ > kSmallEntryBytes; }
  const iovec* buffers() const { return buffers_; }
  uint64_t commit_id() const { return commit_id_; }
  void forget_commit_id() { commit_id_ = 0; }

 protected:
  void complete(int32_t error, size_t payload_size) override {
    answer_error_ = error;
    answer_size_ = payload_size;
    if (std::this_thread::get_id() == queue_.thread_.get_id()) {
      queue_.commit(*this);
    } else {
      queue_.hand_over(*this);
    }
  }

 private:
  fuse::RingHeader& header() { return *reinterpret_cast<fuse::RingHeader*>(memory_); }

  RingQueue& queue_;
  const bool is_small_;
  const size_t payload_bytes_;
  uint8_t* const memory_;
  iovec buffers_[2];
  uint64_t commit_id_ = 0;
  int32_t answer_error_ = 0;
  size_t answer_size_ = 0;
};

RingQueue::RingQueue(int fuse_fd, uint16_t queue_id, RequestHandler& handler,
                     const TransportOptions& options, SessionEnded ended)
    : fuse_fd_(fuse_fd),
      queue_id_(queue_id),
      handler_(handler),
      options_(options),
      ended_(std::move(ended)) {}

RingQueue::~RingQueue() {
  stop();
}

Status RingQueue::prepare() {
  wake_fd_.reset(eventfd(0, EFD_CLOEXEC));
  if (!wake_fd_) return fail_errno("eventfd");
  std::promise<void> thread_is_stored;
  thread_ = std::thread([this, stored = thread_is_stored.get_future()]() mutable {
    stored.wait();
    run();
  });
  thread_is_stored.set_value();
  return prepared_.get_future().get();
}

Status RingQueue::start() {
  go_was_set_ = true;
  go_.set_value(true);
  return started_.get_future().get();
}

void RingQueue::stop() {
  if (!thread_.joinable()) return;
  stopping_.store(true, std::memory_order_release);
  if (!go_was_set_) go_.set_value(false);
  wake();
  thread_.join();
}

void RingQueue::run() {
  const std::string name = "fuse-ring-" + std::to_string(queue_id_);
  pthread_setname_np(pthread_self(), name.c_str());
  sigset_t all_signals;
  sigfillset(&all_signals);
  pthread_sigmask(SIG_BLOCK, &all_signals, nullptr);
  // A CPU that is not online cannot be bound to, and sends no requests either.
  pin_to_cpu(queue_id_);
  Status status = set_up_ring();
  const bool is_set_up = status.has_value();
  prepared_.set_value(std::move(status));
  if (is_set_up && go_.get_future().get()) {
    Status registered = register_entries();
    const bool is_registered = registered.has_value();
    started_.set_value(std::move(registered));
    if (is_registered) loop();
  }
  if (ring_is_set_up_) io_uring_queue_exit(&ring_);
}

Status RingQueue::set_up_ring() {
  io_uring_params params{};
  params.flags = IORING_SETUP_SQE128 | IORING_SETUP_CQSIZE | IORING_SETUP_SINGLE_ISSUER |
                 IORING_SETUP_DEFER_TASKRUN;
  // Every entry has at most one command in flight, and the eventfd one read.
  const auto submission_count = static_cast<unsigned>(options_.depth_max + 8);
  params.cq_entries = submission_count * 2;
  const int result = io_uring_queue_init_params(submission_count, &ring_, &params);
  if (result < 0) {
    return fail_errno(-result, "setting up the io_uring of queue " + std::to_string(queue_id_));
  }
  ring_is_set_up_ = true;
  // A child that outlives this process must not keep the ring, which keeps /dev/fuse.
  const int hidden = io_uring_ring_dontfork(&ring_);
  if (hidden < 0) return fail_errno(-hidden, "hiding a ring from child processes");
  return {};
}

Status RingQueue::register_entries() {
  arm_wake();
  for (size_t i = 0; i < options_.depth; ++i) add_entry();
  const int submitted = io_uring_submit(&ring_);
  if (submitted < 0) {
    return fail_errno(-submitted, "submitting to queue " + std::to_string(queue_id_));
  }
  // A refusal completes at once; what the kernel accepted completes with the first request.
  io_uring_get_events(&ring_);
  io_uring_cqe* completion;
  while (io_uring_peek_cqe(&ring_, &completion) == 0) {
    const io_uring_cqe copy = *completion;
    io_uring_cqe_seen(&ring_, completion);
    on_completion(copy);
  }
  if (!first_failure_) return std::move(first_failure_);
  return {};
}

void RingQueue::loop() {
  while (!stopping_.load(std::memory_order_acquire)) {
    if (!to_trim_.empty()) trim_answered();
    const int result = io_uring_submit_and_wait(&ring_, 1);
    if (result < 0 && result != -EINTR && result != -EAGAIN && result != -EBUSY) break;
    io_uring_cqe* completion;
    unsigned head;
    unsigned seen_count = 0;
    io_uring_for_each_cqe(&ring_, head, completion) {
      ++seen_count;
      on_completion(*completion);
    }
    io_uring_cq_advance(&ring_, seen_count);
    if (dead_count_ == entries_.size()) break;
  }
  if (!stopping_.load(std::memory_order_acquire)) ended_();
}

void RingQueue::trim_answered() {
  // Not by the call that also waits: the next request may be long in coming.
  io_uring_submit(&ring_);
  // While something is left in the submission queue, the kernel may not have taken every answer.
  if (io_uring_sq_ready(&ring_) != 0) return;
  for (Entry* entry : to_trim_) entry->trim();
  to_trim_.clear();
}

void RingQueue::add_entry() {
  entries_.push_back(std::make_unique<Entry>(*this, entries_.size() >= kLargeEntryCountMax));
  ++waiting_count_;
  submit_command(*entries_.back(), fuse::kRingRegister, 0);
}

void RingQueue::arm_wake() {
  io_uring_sqe* submission = next_submission();
  io_uring_prep_read(submission, wake_fd_.get(), &wake_value_, sizeof(wake_value_), 0);
  submission->user_data = kWakeTag;
}

io_uring_sqe* RingQueue::next_submission() {
  io_uring_sqe* submission = io_uring_get_sqe(&ring_);
  if (submission == nullptr) {
    io_uring_submit(&ring_);
    submission = io_uring_get_sqe(&ring_);
  }
  // The queue has room for every entry's command at once.
  VARVE_CHECK(submission != nullptr);
  std::memset(submission, 0, 2 * sizeof(io_uring_sqe));
  return submission;
}

void RingQueue::submit_command(Entry& entry, uint32_t command, uint64_t commit_id) {
  io_uring_sqe* submission = next_submission();
  submission->opcode = IORING_OP_URING_CMD;
  submission->fd = fuse_fd_;
  submission->cmd_op = command;
  submission->user_data = reinterpret_cast<uint64_t>(&entry);
  if (command == fuse::kRingRegister) {
    submission->addr = reinterpret_cast<uint64_t>(entry.buffers());
    submission->len = 2;
  }
  fuse::RingCommandArea area{};
  area.commit_id = commit_id;
  area.queue_id = queue_id_;
  std::memcpy(submission->cmd, &area, sizeof(area));
}

void RingQueue::on_completion(const io_uring_cqe& completion) {
  if (completion.user_data == kWakeTag) {
    commit_handed_over();
    arm_wake();
    return;
  }
  on_command_result(*reinterpret_cast<Entry*>(completion.user_data), completion.res);
}

void RingQueue::on_command_result(Entry& entry, int result) {
  switch (result) {
    case 0:
      --waiting_count_;
      dispatch(entry);
      return;
    case -EAGAIN:
    case -EINTR:
      submit_command(entry,
                     entry.commit_id() == 0 ? fuse::kRingRegister : fuse::kRingCommitAndFetch,
                     entry.commit_id());
      return;
    case -ENOENT:
      // The request was withdrawn before its answer came: the kernel dropped the entry with it.
      entry.forget_commit_id();
      submit_command(entry, fuse::kRingRegister, 0);
      return;
    default:
      --waiting_count_;
      ++dead_count_;
      if (first_failure_) {
        first_failure_ = fail_errno(-result, "command of ring queue " + std::to_string(queue_id_));
      }
  }
}

void RingQueue::dispatch(Entry& entry) {
  entry.take();
  handler_.handle(entry);
  if (waiting_count_ < kWaitingCountMin && entries_.size() < options_.depth_max) add_entry();
}

void RingQueue::commit(Entry& entry) {
  entry.write_answer();
  ++waiting_count_;
  submit_command(entry, fuse::kRingCommitAndFetch, entry.commit_id());
  if (entry.wants_trim()) to_trim_.push_back(&entry);
}

void RingQueue::hand_over(Entry& entry) {
  bool is_first;
  {
    std::lock_guard lock(handed_over_mutex_);
    is_first = handed_over_.empty();
    handed_over_.push_back(&entry);
  }
  if (is_first) wake();
}

void RingQueue::commit_handed_over() {
  std::vector<Entry*> entries;
  {
    std::lock_guard lock(handed_over_mutex_);
    entries.swap(handed_over_);
  }
  for (Entry* entry : entries) commit(*entry);
}

void RingQueue::wake() {
  const uint64_t one = 1;
  // The counter cannot overflow: the queue reads it after every wake.
  VARVE_CHECK_OP(write(wake_fd_.get(), &one, sizeof(one)), ==, ssize_t{sizeof(one)});
}

}  // namespace varve::fs
