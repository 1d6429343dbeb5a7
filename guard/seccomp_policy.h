#pragma once

#include <cstdint>
#include <span>

namespace varve::guard {

/// The system call policy of sandboxes, as data. The generator (seccomp_gen.cc) compiles it at
/// build time, so that a launch costs no libseccomp; seccomp_policy_test runs the generated program
/// against these lists. The answers:
///  - allowed;
///  - EPERM for calls that are known and refused;
///  - ENOTTY for ioctl requests that are unknown, as of a file that has none of them;
///  - ENOSYS for everything else, so that C libraries fall back as on an older kernel.
/// Calls of other architectures than the one built for (32-bit, x32) answer ENOSYS.

/// Names of calls that are allowed whatever their arguments.
std::span<const char* const> allowed_calls();

/// Names of calls that are refused with EPERM, grouped by why in the source.
std::span<const char* const> refused_calls();

/// Calls that are allowed when argument `argument` has `value` under `mask`.
struct ArgumentRule {
  const char* call;
  unsigned argument;
  uint64_t mask;
  uint64_t value;
  /// A second condition; mask 0 means none.
  unsigned second_argument = 0;
  uint64_t second_mask = 0;
  uint64_t second_value = 0;
};
std::span<const ArgumentRule> argument_rules();

/// How one ioctl request is answered. Only the low 32 bits of the request count, as in the kernel.
enum class IoctlAnswer { kAllow, kRefuse, kNotATerminal };

/// ioctl requests that are refused (EPERM) although their type byte is allowed, by their low 16
/// bits, so that variants of another size are met as well.
std::span<const uint16_t> refused_ioctls();
/// ioctl requests that are allowed although their type byte is not.
std::span<const uint16_t> allowed_ioctls();
/// Type bytes (bits 8–15) whose requests are allowed.
std::span<const uint8_t> allowed_ioctl_types();
/// Type bytes that belong to devices and filesystems that no sandbox may drive: EPERM, not ENOTTY.
std::span<const uint8_t> refused_ioctl_types();
IoctlAnswer answer_to_ioctl(uint32_t request);

/// How setrlimit and prlimit64 are answered:
///  - EPERM for those of PID 1, which the sandbox's root, being the same user, could end by its
///    time on the CPU: that would pass for a failure of the host;
///  - success, and nothing is done, for RLIMIT_CORE. It is 1, with which alone the kernel does not
///    run the program that the host's core_pattern may name, as the host's root, for a crash in a
///    sandbox. Programs that set it to 0 (and end if they cannot) have no less of what they want;
///  - allowed for the rest, and to read.
inline constexpr uint32_t kCoreLimitBytes = 1;

/// prctl options that are refused although prctl is allowed.
std::span<const uint32_t> refused_prctls();

}  // namespace varve::guard
