#include "fs/transport/dev_transport.h"

#include <poll.h>
#include <sched.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/clock.h"
#include "fs/transport/reader_follower.h"

namespace varve::fs {
namespace {

// Room for a READ buffer of the protocol's minimum and for long BATCH_FORGETs.
constexpr size_t kReadBufferBytes = 64 << 10;
constexpr size_t kKeptPayloadCountMax = 8;
// How long a thread looks for the next request before it sleeps.
constexpr uint64_t kLingerNs = 50'000;

}  // namespace

/// Lives on the heap from the read to the answer, so that any number of requests can wait.
class DevTransport::DevRequest : public Request {
 public:
  explicit DevRequest(DevTransport& transport) : transport_(transport) {}
  ~DevRequest() override {
    if (payload_ != nullptr) transport_.payloads_.release(payload_);
  }

  void take(const fuse::InHeader& header, ByteView argument, ByteView tail) {
    assign(header, argument, tail);
  }
  MutableByteView payload() override {
    if (payload_ == nullptr) payload_ = transport_.payloads_.acquire();
    return {payload_, transport_.payloads_.buffer_bytes()};
  }
  void finish_without_reply() override { delete this; }

 protected:
  void complete(int32_t error, size_t payload_size) override {
    if (!write_reply(error, payload_size) && error == 0) write_reply(-EIO, 0);
    delete this;
  }

 private:
  // False when the kernel did not take the reply although it still waits for one.
  bool write_reply(int32_t error, size_t payload_size) {
    fuse::OutHeader out{};
    out.length = static_cast<uint32_t>(sizeof(out) + payload_size);
    out.error = error;
    out.unique = unique();
    iovec parts[2] = {{&out, sizeof(out)}, {payload_, payload_size}};
    const ssize_t written = writev(transport_.fuse_fd_, parts, payload_size == 0 ? 1 : 2);
    // ENOENT: the request was aborted; ENODEV: the session is over. Nobody waits any more.
    return written >= 0 || errno == ENOENT || errno == ENODEV || errno == EPERM;
  }

  DevTransport& transport_;
  uint8_t* payload_ = nullptr;
};

DevTransport::DevTransport(int fuse_fd, RequestHandler& handler, Role role, size_t thread_count,
                           const TransportOptions& options, SessionEnded ended)
    : fuse_fd_(fuse_fd),
      handler_(handler),
      role_(role),
      thread_count_(thread_count),
      payloads_(options.payload_bytes, kKeptPayloadCountMax),
      ended_(std::move(ended)) {}

DevTransport::~DevTransport() {
  stop();
}

Status DevTransport::start() {
  for (size_t i = 0; i < thread_count_; ++i) {
    threads_.push_back(std::make_unique<LoopThread>(
        "fuse-dev-" + std::to_string(i), [this](const LoopThread& thread) { run(thread); }));
  }
  return {};
}

void DevTransport::stop() {
  for (auto& thread : threads_) thread->stop();
}

// A reader's next request follows an answer within microseconds. The kernel wakes a sleeping thread
// on another, idle CPU, which takes longer than the answer itself; one that is awake takes the
// request at once. Whoever else wants the CPU gets it.
void DevTransport::linger() const {
  const uint64_t end_ns = monotonic_ns() + kLingerNs;
  pollfd fuse{fuse_fd_, POLLIN, 0};
  while (poll(&fuse, 1, 0) == 0 && monotonic_ns() < end_ns) sched_yield();
}

void DevTransport::run(const LoopThread& thread) {
  uint8_t* buffer = map_anonymous(kReadBufferBytes);
  bool has_served = false;
  ReaderFollower follower;
  while (!thread.stopping()) {
    if (std::exchange(has_served, false) && role_ == Role::kEverything) linger();
    const ssize_t size = read(fuse_fd_, buffer, kReadBufferBytes);
    if (size < 0) {
      // ENOENT: the request was withdrawn between queueing and reading.
      if (errno == EINTR || errno == EAGAIN || errno == ENOENT) continue;
      std::call_once(ended_once_, ended_);
      break;
    }
    if (static_cast<size_t>(size) < sizeof(fuse::InHeader)) continue;
    fuse::InHeader header;
    std::memcpy(&header, buffer, sizeof(header));
    const ByteView rest(buffer + sizeof(header), static_cast<size_t>(size) - sizeof(header));
    const size_t fixed = std::min(fuse::fixed_argument_bytes(header.opcode), rest.size());
    if (role_ == Role::kEverything) follower.on_request(header.pid);
    auto request = std::make_unique<DevRequest>(*this);
    request->take(header, rest.first(fixed), rest.subspan(fixed));
    handler_.handle(*request.release());
    has_served = true;
  }
  unmap_anonymous(buffer, kReadBufferBytes);
}

}  // namespace varve::fs
