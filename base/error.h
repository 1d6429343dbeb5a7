#pragma once

#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <utility>
#include <vector>

namespace varve {

/// What kind of failure it was: a closed set, so that every boundary (FUSE reply, exit status,
/// HTTP status) is one table look-up. See kErrorTable in error.cc.
enum class ErrorCode {
  kInvalidArgument,  ///< The caller's input is wrong: a flag, a tar, a spec.
  kNotFound,         ///< The thing named does not exist; asking again will not help.
  kAlreadyExists,
  kPermission,
  kCorruption,   ///< Bytes do not match their hash, or break their format.
  kUnsupported,  ///< Valid, but this program, kernel or host cannot do it.
  kTimedOut,     ///< A deadline passed.
  kUnavailable,  ///< A backend failed in a way that may pass.
  kNoSpace,
  kIo,  ///< The operating system refused an I/O operation.
  kCancelled,
  kBusy,
  kInternal,
};
inline constexpr int kErrorCodeCount = static_cast<int>(ErrorCode::kInternal) + 1;

/// A failure with its cause and the chain of what was being done, outermost first when printed:
/// `mounting '/x': opening chunk ab12…: No such file or directory`.
///
/// Each context adds its own facts and never repeats the cause. Value type.
class Error {
 public:
  Error(ErrorCode code, std::string message) : code_(code), message_(std::move(message)) {}

  /// From an errno value: the code is derived from it, the text is strerror's.
  static Error from_errno(int errno_value, std::string context);

  ErrorCode code() const { return code_; }
  /// The errno of the cause, or 0 when the cause was not a system call.
  int errno_value() const { return errno_value_; }

  /// Adds what was being done, e.g. "opening '/x'".
  Error&& with_context(std::string context) &&;
  Error& with_context(std::string context) &;

  /// The whole chain in one line.
  std::string to_string() const;

 private:
  ErrorCode code_;
  int errno_value_ = 0;
  std::string message_;
  std::vector<std::string> contexts_;  // innermost first
};

template <class T>
using Result = tl::expected<T, Error>;
using Status = Result<void>;

/// Shorthand for `return tl::unexpected(Error(...))`.
inline tl::unexpected<Error> fail(ErrorCode code, std::string message) {
  return tl::unexpected<Error>(Error(code, std::move(message)));
}
/// Shorthand for a failed system call; `errno_value` defaults to the current errno.
tl::unexpected<Error> fail_errno(std::string context);
tl::unexpected<Error> fail_errno(int errno_value, std::string context);
/// Passes `error` on with one more context.
inline tl::unexpected<Error> fail(Error error, std::string context) {
  return tl::unexpected<Error>(std::move(error).with_context(std::move(context)));
}

/// `result`, its error with one more context.
template <class T>
Result<T> in_context(Result<T> result, const char* context) {
  if (!result) return fail(std::move(result).error(), context);
  return result;
}

std::string_view error_code_name(ErrorCode code);
/// The errno that a FUSE reply carries for `code` (positive).
int error_code_to_errno(ErrorCode code);
/// The exit status of a command-line tool: 1..., documented in each man page's EXIT STATUS.
int error_code_to_exit_status(ErrorCode code);
int error_code_to_http_status(ErrorCode code);

}  // namespace varve

/// Evaluates `expr` (a Status or Result); returns its error from the enclosing function.
#define VARVE_TRY(expr)                                                            \
  do {                                                                             \
    if (auto varve_try_result_ = (expr); !varve_try_result_) [[unlikely]]          \
      return tl::unexpected<::varve::Error>(std::move(varve_try_result_).error()); \
  } while (0)

#define VARVE_CONCAT_INNER_(a, b) a##b
#define VARVE_CONCAT_(a, b) VARVE_CONCAT_INNER_(a, b)
/// `VARVE_ASSIGN(auto x, f());` declares x with the value of f(), or returns f()'s error.
#define VARVE_ASSIGN(declaration, expr) \
  VARVE_ASSIGN_INNER_(VARVE_CONCAT_(varve_result_, __LINE__), declaration, expr)
#define VARVE_ASSIGN_INNER_(result, declaration, expr)                \
  auto result = (expr);                                               \
  if (!result) [[unlikely]]                                           \
    return tl::unexpected<::varve::Error>(std::move(result).error()); \
  declaration = std::move(*result)
