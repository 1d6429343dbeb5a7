#include "fs/transport/session.h"

#include <poll.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/clock.h"
#include "base/file_io.h"
#include "fs/transport/dev_transport.h"
#include "fs/transport/ring_transport.h"

namespace varve::fs {
namespace {

// The oldest protocol with what is relied on: FUSE_MAX_PAGES, FUSE_CACHE_SYMLINKS (Linux 4.20).
constexpr uint32_t kMinorMin = 28;
constexpr size_t kPageBytes = 4096;
// Nothing is ever written; the kernel sizes its read buffers by it.
constexpr uint32_t kWriteBytesMax = 4096;

// Without FUSE_ASYNC_DIO unless asked for: with it a process waits for its direct reads in a state
// that no signal ends.
constexpr uint64_t kWantedFlags = fuse::init_flag::kAsyncRead | fuse::init_flag::kReaddirplus |
                                  fuse::init_flag::kNoOpenSupport |
                                  fuse::init_flag::kParallelDirops | fuse::init_flag::kPosixAcl |
                                  fuse::init_flag::kMaxPages | fuse::init_flag::kCacheSymlinks |
                                  fuse::init_flag::kNoOpendirSupport | fuse::init_flag::kInitExt;

}  // namespace

Status probe_fuse_ring() {
  const std::string path = "/sys/module/fuse/parameters/enable_uring";
  auto value = read_file(path, 16);
  if (!value)
    return fail(ErrorCode::kUnsupported,
                "the kernel has no FUSE over io_uring, which came with Linux 6.14");
  if (value->empty() || (*value)[0] != 'Y') {
    return fail(ErrorCode::kUnsupported, "'" + path + "' is N");
  }
  return {};
}

Session::Session(UniqueFd fuse_fd, RequestHandler& handler, SessionOptions options,
                 SessionEnded ended)
    : fuse_fd_(std::move(fuse_fd)),
      handler_(handler),
      options_(std::move(options)),
      ended_(std::move(ended)) {
  if (!options_.probe_ring) options_.probe_ring = probe_fuse_ring;
}

Session::~Session() {
  stop();
}

Result<std::unique_ptr<Session>> Session::start(UniqueFd fuse_fd, RequestHandler& handler,
                                                SessionOptions options, SessionEnded ended) {
  std::unique_ptr<Session> session(
      new Session(std::move(fuse_fd), handler, std::move(options), std::move(ended)));
  VARVE_TRY(session->negotiate());
  VARVE_TRY(session->start_loops());
  return session;
}

Status Session::negotiate() {
  pollfd ready{fuse_fd_.get(), POLLIN, 0};
  const Deadline deadline = deadline_after_ms(options_.init_timeout_ms);
  int count;
  do {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - MonotonicClock::now());
    count = poll(&ready, 1, static_cast<int>(std::max<int64_t>(left.count(), 0)));
  } while (count < 0 && errno == EINTR);
  if (count < 0) return fail_errno("waiting for FUSE_INIT");
  if (count == 0) return fail(ErrorCode::kTimedOut, "the kernel sent no FUSE_INIT");

  alignas(8) uint8_t buffer[2 * fuse::kReadBufferBytesMin];
  const ssize_t size = read(fuse_fd_.get(), buffer, sizeof(buffer));
  if (size < 0) return fail_errno("reading FUSE_INIT");
  fuse::InHeader header{};
  fuse::InitIn in{};
  if (static_cast<size_t>(size) < sizeof(header) + fuse::kInitInShortBytes) {
    return fail(ErrorCode::kUnsupported, "the kernel's first FUSE request is too short");
  }
  std::memcpy(&header, buffer, sizeof(header));
  std::memcpy(&in, buffer + sizeof(header),
              std::min(sizeof(in), static_cast<size_t>(size) - sizeof(header)));
  if (header.opcode != fuse::kInit) {
    return fail(ErrorCode::kUnsupported, "the kernel's first FUSE request is not INIT");
  }
  if (in.major != fuse::kMajor || in.minor < kMinorMin) {
    return fail(ErrorCode::kUnsupported, "the kernel speaks FUSE " + std::to_string(in.major) +
                                             "." + std::to_string(in.minor) + ", 7." +
                                             std::to_string(kMinorMin) + " is needed");
  }
  return answer_init(header, in);
}

Status Session::prepare_ring(uint64_t kernel_flags) {
  VARVE_TRY(options_.probe_ring());
  if ((kernel_flags & fuse::init_flag::kOverIoUring) == 0) {
    return fail(ErrorCode::kUnsupported, "the kernel does not offer FUSE over io_uring");
  }
  auto ring = RingTransport::prepare(fuse_fd_.get(), handler_, options_.transport_options, ended_);
  if (!ring) {
    Error error = std::move(ring).error();
    if (error.errno_value() == ENOMEM) error.with_context("RLIMIT_MEMLOCK may be too small");
    return tl::unexpected(std::move(error));
  }
  ring_ = std::move(*ring);
  return {};
}

Status Session::answer_init(const fuse::InHeader& header, const fuse::InitIn& in) {
  const bool is_extended = (in.flags & fuse::init_flag::kInitExt) != 0;
  const uint64_t kernel_flags =
      in.flags | (is_extended ? static_cast<uint64_t>(in.flags2) << 32 : 0);
  if (options_.transport != TransportKind::kDev) {
    Status prepared = prepare_ring(kernel_flags);
    if (!prepared && options_.transport == TransportKind::kRing) {
      return fail(std::move(prepared).error(), "the ring transport cannot be used");
    }
    if (!prepared) fallback_reason_ = prepared.error().to_string();
  }
  uint64_t flags = kernel_flags & kWantedFlags;
  if (options_.async_direct_reads) flags |= kernel_flags & fuse::init_flag::kAsyncDio;
  if (ring_ != nullptr) flags |= fuse::init_flag::kOverIoUring;
  constexpr uint64_t kNoOpens =
      fuse::init_flag::kNoOpenSupport | fuse::init_flag::kNoOpendirSupport;
  opens_are_needless_ = (flags & kNoOpens) == kNoOpens;

  fuse::InitOut out{};
  out.major = fuse::kMajor;
  out.minor = std::min(in.minor, fuse::kMinor);
  out.readahead_bytes_max = options_.readahead_bytes_max;
  out.flags = static_cast<uint32_t>(flags);
  out.flags2 = static_cast<uint32_t>(flags >> 32);
  out.background_count_max = options_.background_count_max;
  out.congestion_count = static_cast<uint16_t>(options_.background_count_max / 4 * 3);
  out.write_bytes_max = kWriteBytesMax;
  out.time_granularity_ns = 1;
  out.page_count_max = static_cast<uint16_t>(options_.transport_options.payload_bytes / kPageBytes);
  fuse::OutHeader out_header{static_cast<uint32_t>(sizeof(out_header) + sizeof(out)), 0,
                             header.unique};
  iovec parts[2] = {{&out_header, sizeof(out_header)}, {&out, sizeof(out)}};
  if (writev(fuse_fd_.get(), parts, 2) < 0) return fail_errno("answering FUSE_INIT");
  return {};
}

Status Session::start_loops() {
  if (ring_ != nullptr) {
    Status started = ring_->start();
    if (!started) {
      // The kernel goes on with /dev/fuse when it refused an entry before the ring was complete.
      ring_->stop();
      ring_.reset();
      if (options_.transport == TransportKind::kRing) return started;
      fallback_reason_ = started.error().to_string();
    }
  }
  transport_ = ring_ != nullptr ? TransportKind::kRing : TransportKind::kDev;
  VARVE_ASSIGN(const size_t cpu_count, possible_cpu_count());
  const bool has_ring = ring_ != nullptr;
  dev_ = std::make_unique<DevTransport>(
      fuse_fd_.get(), handler_,
      has_ring ? DevTransport::Role::kBesideRing : DevTransport::Role::kEverything,
      has_ring ? 1 : cpu_count, options_.transport_options, ended_);
  return dev_->start();
}

Status Session::invalidate_entry(uint64_t parent, std::string_view name) {
  fuse::NotifyInvalEntryOut out{};
  out.parent = parent;
  out.name_length = static_cast<uint32_t>(name.size());
  // The name travels with its NUL.
  return notify(fuse::kNotifyInvalEntry, &out, sizeof(out), std::string(name) + '\0');
}

Status Session::invalidate_directory(uint64_t node_id) {
  fuse::NotifyInvalInodeOut out{};
  out.node_id = node_id;
  return notify(fuse::kNotifyInvalInode, &out, sizeof(out), {});
}

Status Session::notify(int32_t code, const void* body, size_t body_bytes, std::string_view name) {
  fuse::OutHeader header{static_cast<uint32_t>(sizeof(header) + body_bytes + name.size()), code, 0};
  iovec parts[3] = {{&header, sizeof(header)},
                    {const_cast<void*>(body), body_bytes},
                    {const_cast<char*>(name.data()), name.size()}};
  // ENOENT: the kernel does not know it, so it cached nothing; ENODEV: the session is over.
  if (writev(fuse_fd_.get(), parts, name.empty() ? 2 : 3) < 0 && errno != ENOENT &&
      errno != ENODEV) {
    return fail_errno("notifying the kernel");
  }
  return {};
}

void Session::stop() {
  if (ring_ != nullptr) ring_->stop();
  if (dev_ != nullptr) dev_->stop();
}

}  // namespace varve::fs
