#include "base/error.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <set>

namespace varve {
namespace {

TEST(ErrorTest, EveryCodeHasANameAnErrnoAnExitStatusAndAnHttpStatus) {
  std::set<int> exit_statuses;
  for (int i = 0; i < kErrorCodeCount; ++i) {
    const auto code = static_cast<ErrorCode>(i);
    EXPECT_FALSE(error_code_name(code).empty());
    EXPECT_GT(error_code_to_errno(code), 0);
    EXPECT_GE(error_code_to_http_status(code), 400);
    EXPECT_LT(error_code_to_http_status(code), 600);
    exit_statuses.insert(error_code_to_exit_status(code));
  }
  EXPECT_EQ(exit_statuses.size(), static_cast<size_t>(kErrorCodeCount));
  EXPECT_EQ(exit_statuses.count(0), 0u);
}

TEST(ErrorTest, PrintsContextsOutermostFirst) {
  Error error = Error::from_errno(ENOENT, "opening chunk ab12");
  error.with_context("mounting '/x'");
  EXPECT_EQ(error.to_string(), "mounting '/x': opening chunk ab12: No such file or directory");
  EXPECT_EQ(error.code(), ErrorCode::kNotFound);
  EXPECT_EQ(error.errno_value(), ENOENT);
}

Result<int> half(int value) {
  if (value % 2 != 0) return fail(ErrorCode::kInvalidArgument, "odd");
  return value / 2;
}

Result<int> quarter(int value) {
  VARVE_ASSIGN(const int once, half(value));
  VARVE_TRY(half(once));
  return half(once);
}

TEST(ErrorTest, TryAndAssignPassTheErrorOn) {
  EXPECT_EQ(quarter(8).value(), 2);
  EXPECT_EQ(quarter(6).error().to_string(), "odd");
  EXPECT_EQ(quarter(5).error().code(), ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace varve
