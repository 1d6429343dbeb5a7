#pragma once

#include <optional>

#include "fs/fuse/request.h"

namespace varve::fs {

/// A request that keeps its answer.
class FakeRequest : public Request {
 public:
  explicit FakeRequest(fuse::InHeader header = {}, ByteView argument = {}, ByteView tail = {})
      : payload_(1 << 20) {
    assign(header, argument, tail);
  }
  static fuse::InHeader with_unique(uint64_t unique, uint32_t pid = 1) {
    fuse::InHeader header{};
    header.unique = unique;
    header.pid = pid;
    return header;
  }

  MutableByteView payload() override { return payload_; }
  void finish_without_reply() override { ++answer_count_; }

  /// 0 or a positive errno; only after an answer.
  int error() const { return *error_; }
  bool is_answered() const { return error_.has_value(); }
  size_t answer_count() const { return answer_count_; }

 protected:
  void complete(int32_t error, size_t) override {
    ++answer_count_;
    error_ = -error;
  }

 private:
  Bytes payload_;
  std::optional<int> error_;
  size_t answer_count_ = 0;
};

}  // namespace varve::fs
