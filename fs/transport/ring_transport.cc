#include "fs/transport/ring_transport.h"

#include <charconv>

#include "base/file_io.h"
#include "fs/transport/ring_queue.h"

namespace varve::fs {

Result<size_t> possible_cpu_count() {
  const std::string path = "/sys/devices/system/cpu/possible";
  VARVE_ASSIGN(const Bytes text, read_file(path, 4096));
  // A list of ranges such as "0-3" or "0,2-5"; the last number is the highest.
  std::string_view rest = as_text(text);
  while (!rest.empty() && (rest.back() < '0' || rest.back() > '9')) rest.remove_suffix(1);
  const size_t start = rest.find_last_not_of("0123456789") + 1;
  size_t last = 0;
  const auto parsed = std::from_chars(rest.data() + start, rest.data() + rest.size(), last);
  if (parsed.ec != std::errc() || last >= UINT16_MAX) {
    return fail(ErrorCode::kUnsupported, "'" + path + "' holds no list of CPUs");
  }
  return last + 1;
}

RingTransport::RingTransport(SessionEnded ended) : ended_(std::move(ended)) {}

Result<std::unique_ptr<RingTransport>> RingTransport::prepare(int fuse_fd, RequestHandler& handler,
                                                              const TransportOptions& options,
                                                              SessionEnded ended) {
  VARVE_ASSIGN(const size_t queue_count, possible_cpu_count());
  std::unique_ptr<RingTransport> transport(new RingTransport(std::move(ended)));
  RingTransport* self = transport.get();
  for (size_t i = 0; i < queue_count; ++i) {
    transport->queues_.push_back(
        std::make_unique<RingQueue>(fuse_fd, static_cast<uint16_t>(i), handler, options,
                                    [self] { std::call_once(self->ended_once_, self->ended_); }));
    VARVE_TRY(transport->queues_.back()->prepare());
  }
  return transport;
}

RingTransport::~RingTransport() {
  stop();
}

Status RingTransport::start() {
  Status first_failure;
  for (auto& queue : queues_) {
    Status status = queue->start();
    if (!status && first_failure) first_failure = std::move(status);
  }
  return first_failure;
}

void RingTransport::stop() {
  for (auto& queue : queues_) queue->stop();
}

}  // namespace varve::fs
