#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "base/bytes.h"
#include "fs/fuse/protocol.h"

namespace varve::fs {

/// One request of the kernel, wherever it came from. The transport owns the object; a handler may
/// keep the pointer and answer later, from any thread, exactly once; the object (and the payload)
/// is gone for the handler from that moment.
class Request {
 public:
  static constexpr size_t kNameBytesMax = 255;

  virtual ~Request() = default;
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;

  const fuse::InHeader& header() const { return header_; }
  uint64_t unique() const { return header_.unique; }

  /// The fixed argument as a T, or nullptr when the kernel sent less.
  template <class T>
  const T* argument() const {
    static_assert(sizeof(T) <= kArgumentBytesMax);
    return argument_size_ >= sizeof(T) ? reinterpret_cast<const T*>(argument_.data()) : nullptr;
  }
  /// The name that LOOKUP and GETXATTR carry; "" when there is none or it is too long.
  std::string_view name() const { return {name_.data(), name_size_}; }
  /// True when the kernel sent a name of more than kNameBytesMax bytes.
  bool name_is_too_long() const { return name_is_too_long_; }
  /// What followed the fixed argument, as it came; valid inside RequestHandler::handle only.
  ByteView tail() const { return tail_; }

  /// Where the data of the reply goes; at least the transport's payload size. The first call may
  /// allocate.
  virtual MutableByteView payload() = 0;
  /// Answers with the first `payload_size` bytes of payload().
  void reply(size_t payload_size) { complete(0, payload_size); }
  /// Answers with a failure; `errno_value` is positive.
  void reply_error(int errno_value) { complete(-errno_value, 0); }
  /// Ends a request that the kernel wants no answer to (FORGET, INTERRUPT).
  virtual void finish_without_reply() = 0;

 protected:
  static constexpr size_t kArgumentBytesMax = 128;

  Request() = default;
  virtual void complete(int32_t error, size_t payload_size) = 0;

  /// Takes the parts of a request as the transport found them.
  void assign(const fuse::InHeader& header, ByteView argument, ByteView tail) {
    header_ = header;
    argument_size_ = std::min(argument.size(), kArgumentBytesMax);
    if (argument_size_ != 0) std::memcpy(argument_.data(), argument.data(), argument_size_);
    tail_ = tail;
    const void* end = tail.empty() ? nullptr : std::memchr(tail.data(), 0, tail.size());
    const size_t size =
        end == nullptr ? 0 : static_cast<size_t>(static_cast<const uint8_t*>(end) - tail.data());
    name_is_too_long_ = size > kNameBytesMax;
    name_size_ = name_is_too_long_ ? 0 : size;
    if (name_size_ != 0) std::memcpy(name_.data(), tail.data(), name_size_);
  }

 private:
  fuse::InHeader header_{};
  alignas(8) std::array<uint8_t, kArgumentBytesMax> argument_{};
  size_t argument_size_ = 0;
  std::array<char, kNameBytesMax> name_{};
  size_t name_size_ = 0;
  bool name_is_too_long_ = false;
  ByteView tail_;
};

/// Takes the requests of a session. Thread-safe: every queue thread calls it.
class RequestHandler {
 public:
  virtual ~RequestHandler() = default;
  /// Answers `request`, or keeps it and answers later. Never blocks on a backend: the caller is a
  /// queue thread.
  virtual void handle(Request& request) = 0;
};

}  // namespace varve::fs
