#pragma once

#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>

namespace varve::internal {

[[noreturn]] inline void check_failed(const char* file, int line, const char* expression,
                                      const std::string& values) {
  std::fprintf(stderr, "%s:%d: check failed: %s%s\n", file, line, expression, values.c_str());
  std::abort();
}

template <class A, class B>
std::string describe_values(const A& a, const B& b) {
  std::ostringstream out;
  out << " (" << a << " vs " << b << ")";
  return out.str();
}

}  // namespace varve::internal

/// Aborts when `condition` is false. For programmer errors only, never for input.
#define VARVE_CHECK(condition)                                                          \
  do {                                                                                  \
    if (!(condition)) [[unlikely]]                                                      \
      ::varve::internal::check_failed(__FILE__, __LINE__, #condition, "");              \
  } while (0)

/// Like VARVE_CHECK(a op b), and prints both values.
#define VARVE_CHECK_OP(a, op, b)                                                        \
  do {                                                                                  \
    if (!((a)op(b))) [[unlikely]]                                                       \
      ::varve::internal::check_failed(__FILE__, __LINE__, #a " " #op " " #b,            \
                                      ::varve::internal::describe_values((a), (b)));    \
  } while (0)
