#include "fs/fuse/protocol.h"

namespace varve::fs::fuse {

size_t fixed_argument_bytes(uint32_t opcode) {
  switch (opcode) {
    case kForget:
      return sizeof(ForgetIn);
    case kBatchForget:
      return sizeof(BatchForgetIn);
    case kGetattr:
      return sizeof(GetattrIn);
    case kOpen:
    case kOpendir:
      return sizeof(OpenIn);
    case kRead:
    case kReaddir:
    case kReaddirplus:
      return sizeof(ReadIn);
    case kGetxattr:
    case kListxattr:
      return sizeof(GetxattrIn);
    case kInterrupt:
      return sizeof(InterruptIn);
    default:
      return 0;
  }
}

}  // namespace varve::fs::fuse
