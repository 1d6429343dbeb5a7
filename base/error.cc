#include "base/error.h"

#include <cerrno>
#include <cstring>

#include "base/check.h"

namespace varve {
namespace {

struct ErrorTableRow {
  ErrorCode code;
  std::string_view name;
  int fuse_errno;
  int exit_status;
  int http_status;
};

// One row per enumerator, in order; error_test walks every enumerator.
constexpr ErrorTableRow kErrorTable[] = {
    {ErrorCode::kInvalidArgument, "invalid argument", EINVAL, 2, 400},
    {ErrorCode::kNotFound, "not found", ENOENT, 3, 404},
    {ErrorCode::kAlreadyExists, "already exists", EEXIST, 4, 409},
    {ErrorCode::kPermission, "permission denied", EACCES, 5, 403},
    {ErrorCode::kCorruption, "corruption", EIO, 6, 500},
    {ErrorCode::kUnsupported, "unsupported", EOPNOTSUPP, 7, 422},
    {ErrorCode::kTimedOut, "timed out", EIO, 8, 504},
    {ErrorCode::kUnavailable, "unavailable", EIO, 9, 503},
    {ErrorCode::kNoSpace, "no space", ENOSPC, 10, 507},
    {ErrorCode::kIo, "input/output error", EIO, 11, 500},
    {ErrorCode::kCancelled, "cancelled", EINTR, 12, 499},
    {ErrorCode::kBusy, "busy", EBUSY, 13, 409},
    {ErrorCode::kInternal, "internal error", EIO, 14, 500},
};
static_assert(sizeof(kErrorTable) / sizeof(kErrorTable[0]) == kErrorCodeCount);

const ErrorTableRow& row(ErrorCode code) {
  const auto index = static_cast<size_t>(code);
  VARVE_CHECK(index < kErrorCodeCount && kErrorTable[index].code == code);
  return kErrorTable[index];
}

ErrorCode code_of_errno(int errno_value) {
  switch (errno_value) {
    case EINVAL:
    case ENAMETOOLONG:
      return ErrorCode::kInvalidArgument;
    case ENOENT:
    case ENOTDIR:
      return ErrorCode::kNotFound;
    case EEXIST:
    case ENOTEMPTY:
      return ErrorCode::kAlreadyExists;
    case EACCES:
    case EPERM:
    case EROFS:
      return ErrorCode::kPermission;
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      return ErrorCode::kNoSpace;
    case ENOSYS:
    case EOPNOTSUPP:
      return ErrorCode::kUnsupported;
    case ETIMEDOUT:
      return ErrorCode::kTimedOut;
    case ECONNREFUSED:
    case ECONNRESET:
    case EPIPE:
      return ErrorCode::kUnavailable;
    case EBUSY:
      return ErrorCode::kBusy;
    case ECANCELED:
    case EINTR:
      return ErrorCode::kCancelled;
    default:
      return ErrorCode::kIo;
  }
}

}  // namespace

Error Error::from_errno(int errno_value, std::string context) {
  Error error(code_of_errno(errno_value), std::strerror(errno_value));
  error.errno_value_ = errno_value;
  if (!context.empty()) error.contexts_.push_back(std::move(context));
  return error;
}

Error&& Error::with_context(std::string context) && {
  contexts_.push_back(std::move(context));
  return std::move(*this);
}

Error& Error::with_context(std::string context) & {
  contexts_.push_back(std::move(context));
  return *this;
}

std::string Error::to_string() const {
  std::string text;
  for (auto it = contexts_.rbegin(); it != contexts_.rend(); ++it) {
    text += *it;
    text += ": ";
  }
  return text + message_;
}

tl::unexpected<Error> fail_errno(std::string context) { return fail_errno(errno, std::move(context)); }

tl::unexpected<Error> fail_errno(int errno_value, std::string context) {
  return tl::unexpected<Error>(Error::from_errno(errno_value, std::move(context)));
}

std::string_view error_code_name(ErrorCode code) { return row(code).name; }
int error_code_to_errno(ErrorCode code) { return row(code).fuse_errno; }
int error_code_to_exit_status(ErrorCode code) { return row(code).exit_status; }
int error_code_to_http_status(ErrorCode code) { return row(code).http_status; }

}  // namespace varve
