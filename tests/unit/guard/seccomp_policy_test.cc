// Runs the generated BPF program in a small interpreter and compares its answers with the policy.
#include "guard/seccomp_policy.h"

#include <gtest/gtest.h>
#include <linux/audit.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <seccomp.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include <cerrno>
#include <cstring>
#include <set>
#include <string>

#include "guard/seccomp_filter.h"

namespace varve::guard {
namespace {

constexpr uint32_t kAllow = SECCOMP_RET_ALLOW;
constexpr uint32_t kEperm = SECCOMP_RET_ERRNO | EPERM;
constexpr uint32_t kEnosys = SECCOMP_RET_ERRNO | ENOSYS;
constexpr uint32_t kEnotty = SECCOMP_RET_ERRNO | ENOTTY;

uint32_t evaluate(const seccomp_data& data) {
  const auto program = seccomp_filter();
  uint32_t accumulator = 0;
  for (size_t pc = 0; pc < program.size(); ++pc) {
    const sock_filter& i = program[pc];
    switch (i.code) {
      case BPF_LD | BPF_W | BPF_ABS:
        if (i.k > sizeof data - 4) return 0;
        std::memcpy(&accumulator, reinterpret_cast<const char*>(&data) + i.k, 4);
        break;
      case BPF_ALU | BPF_AND | BPF_K:
        accumulator &= i.k;
        break;
      case BPF_ALU | BPF_RSH | BPF_K:
        accumulator >>= i.k;
        break;
      case BPF_JMP | BPF_JA:
        pc += i.k;
        break;
      case BPF_JMP | BPF_JEQ | BPF_K:
        pc += accumulator == i.k ? i.jt : i.jf;
        break;
      case BPF_JMP | BPF_JGT | BPF_K:
        pc += accumulator > i.k ? i.jt : i.jf;
        break;
      case BPF_JMP | BPF_JGE | BPF_K:
        pc += accumulator >= i.k ? i.jt : i.jf;
        break;
      case BPF_JMP | BPF_JSET | BPF_K:
        pc += (accumulator & i.k) != 0 ? i.jt : i.jf;
        break;
      case BPF_RET | BPF_K:
        return i.k;
      default:
        ADD_FAILURE() << "unknown instruction " << i.code;
        return 0;
    }
  }
  ADD_FAILURE() << "the program runs past its end";
  return 0;
}

uint32_t call(long number, uint64_t a0 = 0, uint64_t a1 = 0, uint64_t a2 = 0) {
  seccomp_data data{};
  data.nr = static_cast<int>(number);
  data.arch = seccomp_arch_native();
  data.args[0] = a0;
  data.args[1] = a1;
  data.args[2] = a2;
  return evaluate(data);
}

TEST(SeccompPolicyTest, EveryListedCallGetsItsAnswer) {
  for (const char* name : allowed_calls()) {
    const int number = seccomp_syscall_resolve_name(name);
    if (number >= 0) {
      EXPECT_EQ(call(number), kAllow) << name;
    }
  }
  for (const char* name : refused_calls()) {
    const int number = seccomp_syscall_resolve_name(name);
    if (number >= 0) {
      EXPECT_EQ(call(number), kEperm) << name;
    }
  }
}

TEST(SeccompPolicyTest, NoNameIsListedTwice) {
  std::set<std::string> seen;
  for (const char* name : allowed_calls()) EXPECT_TRUE(seen.insert(name).second) << name;
  for (const char* name : refused_calls()) EXPECT_TRUE(seen.insert(name).second) << name;
}

TEST(SeccompPolicyTest, EveryOtherNumberIsUnknownToTheSandbox) {
  std::set<int> listed{SYS_ioctl, SYS_prctl, SYS_setrlimit, SYS_prlimit64};
  for (const char* name : allowed_calls()) listed.insert(seccomp_syscall_resolve_name(name));
  for (const char* name : refused_calls()) listed.insert(seccomp_syscall_resolve_name(name));
  for (const ArgumentRule& rule : argument_rules()) {
    listed.insert(seccomp_syscall_resolve_name(rule.call));
  }
  for (int number = 0; number < 1024; ++number) {
    if (listed.count(number) == 0) {
      EXPECT_EQ(call(number), kEnosys) << number;
    }
  }
  EXPECT_EQ(call(SYS_clone3), kEnosys);
}

TEST(SeccompPolicyTest, ForeignArchitecturesAreRefused) {
  seccomp_data data{};
  data.nr = SYS_read;
  data.arch = seccomp_arch_native() == AUDIT_ARCH_I386 ? AUDIT_ARCH_X86_64 : AUDIT_ARCH_I386;
  EXPECT_EQ(evaluate(data), kEnosys);
  data.nr = SYS_ioctl;
  EXPECT_EQ(evaluate(data), kEnosys);
#ifdef __x86_64__
  EXPECT_EQ(call(0x40000000 | SYS_read), kEnosys) << "x32";
  EXPECT_EQ(call(0x40000000 | 514), kEnosys) << "x32 ioctl";
#endif
}

TEST(SeccompPolicyTest, EveryIoctlIsAnsweredAsThePolicySays) {
  for (uint32_t request = 0; request <= 0xffff; ++request) {
    const uint32_t expected = answer_to_ioctl(request) == IoctlAnswer::kAllow    ? kAllow
                              : answer_to_ioctl(request) == IoctlAnswer::kRefuse ? kEperm
                                                                                 : kEnotty;
    ASSERT_EQ(call(SYS_ioctl, 0, request), expected) << std::hex << request;
    // Direction and size bits, and the upper half that the kernel drops, change nothing.
    ASSERT_EQ(call(SYS_ioctl, 0, 0xdead'beef'4010'0000 | request), expected) << std::hex << request;
  }
}

TEST(SeccompPolicyTest, DangerousIoctlsAreRefusedAndUsefulOnesWork) {
  for (const uint64_t request :
       {0xc0c0586dUL, 0x40285881UL, 0x8004587dUL, 0xc0045877UL, 0xc0045878UL, 0xc0185879UL,
        0x40086602UL, 0x401c5820UL, 0xc028660fUL, 0x6611UL, 0x5412UL, 0x541cUL, 0x5423UL, 0x4c00UL,
        0xab00UL, 0xae01UL, 0x5000940aUL, 0x1268UL, 0x8004e500UL}) {
    EXPECT_EQ(call(SYS_ioctl, 0, request), kEperm) << std::hex << request;
  }
  for (const uint64_t request :
       {0x5401UL /* TCGETS */, 0x5413UL /* TIOCGWINSZ */, 0x541bUL /* FIONREAD */,
        0x5421UL /* FIONBIO */, 0x8912UL, 0xc020660bUL /* FIEMAP */, 0x80086601UL /* GETFLAGS */,
        0x40049409UL /* FICLONE */}) {
    EXPECT_EQ(call(SYS_ioctl, 0, request), kAllow) << std::hex << request;
  }
  EXPECT_EQ(call(SYS_ioctl, 0, 0x1234567), kEnotty);
}

TEST(SeccompPolicyTest, CloneMakesNoNamespaces) {
  EXPECT_EQ(call(SYS_clone, SIGCHLD), kAllow);
  EXPECT_EQ(call(SYS_clone, CLONE_VM | CLONE_VFORK | CLONE_THREAD), kAllow);
  for (const uint64_t flag : {CLONE_NEWNS, CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET, CLONE_NEWUTS,
                              CLONE_NEWIPC, CLONE_NEWCGROUP}) {
    EXPECT_NE(call(SYS_clone, flag | SIGCHLD), kAllow) << std::hex << flag;
  }
}

TEST(SeccompPolicyTest, OnlyOrdinarySocketFamiliesExist) {
  EXPECT_EQ(call(SYS_socket, AF_UNIX, SOCK_STREAM), kAllow);
  EXPECT_EQ(call(SYS_socket, AF_INET, SOCK_DGRAM, 17), kAllow);
  EXPECT_EQ(call(SYS_socket, AF_INET6, SOCK_STREAM), kAllow);
  EXPECT_EQ(call(SYS_socket, AF_NETLINK, SOCK_RAW, 0), kAllow);
  EXPECT_NE(call(SYS_socket, AF_NETLINK, SOCK_RAW, 16), kAllow) << "generic netlink";
  for (const uint64_t family : {AF_PACKET, AF_VSOCK, AF_ALG, AF_BLUETOOTH, AF_CAN, AF_TIPC, AF_RDS,
                                44 /* AF_XDP */, AF_KEY}) {
    EXPECT_NE(call(SYS_socket, family, SOCK_RAW), kAllow) << family;
  }
}

TEST(SeccompPolicyTest, PrctlIsAllowedExceptCoreScheduling) {
  EXPECT_EQ(call(SYS_prctl, 15 /* PR_SET_NAME */), kAllow);
  EXPECT_EQ(call(SYS_prctl, 62 /* PR_SCHED_CORE */), kEperm);
  EXPECT_EQ(call(SYS_prctl, 0x1'0000'0000 | 62), kEperm) << "the kernel drops the upper half";
}

TEST(SeccompPolicyTest, LimitsOfPidOneStayAndSoDoesThatOfCores) {
  constexpr uint64_t kNew = 0x7fff'0000'0000;  // A pointer whose low half is zero.
  constexpr uint32_t kSuccess = SECCOMP_RET_ERRNO;
  for (const uint64_t resource : {RLIMIT_CPU, RLIMIT_NOFILE, RLIMIT_RTTIME}) {
    EXPECT_EQ(call(SYS_setrlimit, resource, kNew), kAllow);
    EXPECT_EQ(call(SYS_prlimit64, 0, resource, kNew), kAllow);
    EXPECT_EQ(call(SYS_prlimit64, 2, resource, 1), kAllow);
    EXPECT_EQ(call(SYS_prlimit64, 1, resource, kNew), kEperm);
    EXPECT_EQ(call(SYS_prlimit64, 0x1'0000'0001, resource, 1), kEperm) << "the kernel drops half";
    EXPECT_EQ(call(SYS_prlimit64, 1, resource, 0), kAllow) << "reading";
  }
  EXPECT_EQ(call(SYS_prlimit64, 0, RLIMIT_CORE, 0), kAllow) << "reading";
  EXPECT_EQ(call(SYS_prlimit64, 0, RLIMIT_CORE, kNew), kSuccess);
  EXPECT_EQ(call(SYS_prlimit64, 0, 0x1'0000'0000 | RLIMIT_CORE, 1), kSuccess);
  EXPECT_EQ(call(SYS_prlimit64, 1, RLIMIT_CORE, 1), kEperm);
  EXPECT_EQ(call(SYS_setrlimit, RLIMIT_CORE, kNew), kSuccess);
}

TEST(SeccompPolicyTest, PersonalityTakesFiveValues) {
  for (const uint64_t value : {0x0UL, 0x8UL, 0x20000UL, 0x20008UL, 0xffffffffUL}) {
    EXPECT_EQ(call(SYS_personality, value), kAllow) << value;
  }
  EXPECT_NE(call(SYS_personality, 0x0400000 /* READ_IMPLIES_EXEC */), kAllow);
}

}  // namespace
}  // namespace varve::guard
