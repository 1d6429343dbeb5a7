// Build-time generator: compiles seccomp_policy.cc into the BPF program that is embedded in the
// launcher. `seccomp_gen OUTPUT` writes a C array initializer, one instruction a line.
//
// The program is one: a hand-written head answers ioctl and prctl, whose rules overlap in ways that
// libseccomp cannot order; what it does not answer falls through into libseccomp's program. Jumps
// in classic BPF are relative, so the two are simply put one after the other.
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <seccomp.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <vector>

#include "guard/seccomp_policy.h"

namespace {

using varve::guard::ArgumentRule;
using Program = std::vector<sock_filter>;

constexpr uint32_t kAllow = SECCOMP_RET_ALLOW;
constexpr uint32_t kRefuse = SECCOMP_RET_ERRNO | EPERM;
constexpr uint32_t kNotATerminal = SECCOMP_RET_ERRNO | ENOTTY;

sock_filter load(size_t offset) {
  return BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<uint32_t>(offset));
}
sock_filter answer(uint32_t value) {
  return BPF_STMT(BPF_RET | BPF_K, value);
}

/// "If the accumulator equals `value`, answer `result`": two instructions.
void add_case(Program& program, uint32_t value, uint32_t result) {
  program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, 1));
  program.push_back(answer(result));
}

/// Offset of the low 32 bits of argument `index` (little-endian).
size_t low_word(unsigned index) {
  return offsetof(seccomp_data, args) + 8 * index;
}

Program ioctl_block() {
  using namespace varve::guard;
  Program block;
  block.push_back(load(low_word(1)));
  block.push_back(BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 0xffff));
  for (const uint16_t request : refused_ioctls()) add_case(block, request, kRefuse);
  for (const uint16_t request : allowed_ioctls()) add_case(block, request, kAllow);
  block.push_back(BPF_STMT(BPF_ALU | BPF_RSH | BPF_K, 8));
  for (const uint8_t type : allowed_ioctl_types()) add_case(block, type, kAllow);
  for (const uint8_t type : refused_ioctl_types()) add_case(block, type, kRefuse);
  block.push_back(answer(kNotATerminal));
  return block;
}

Program prctl_block() {
  Program block;
  block.push_back(load(low_word(0)));
  for (const uint32_t option : varve::guard::refused_prctls()) add_case(block, option, kRefuse);
  block.push_back(answer(kAllow));
  return block;
}

Program head(uint32_t arch) {
  const Program ioctl = ioctl_block();
  const Program prctl = prctl_block();
  Program program;
  program.push_back(load(offsetof(seccomp_data, arch)));
  // Another architecture: over everything, to libseccomp's program, which refuses it. The distance
  // can pass 255, so it takes an unconditional jump.
  const auto to_end = static_cast<uint32_t>(3 + ioctl.size() + 1 + prctl.size());
  program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, arch, 1, 0));
  program.push_back(BPF_STMT(BPF_JMP | BPF_JA, to_end - 1));
  program.push_back(load(offsetof(seccomp_data, nr)));
  program.push_back(
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ioctl, 0, static_cast<uint8_t>(ioctl.size())));
  program.insert(program.end(), ioctl.begin(), ioctl.end());
  program.push_back(
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_prctl, 0, static_cast<uint8_t>(prctl.size())));
  program.insert(program.end(), prctl.begin(), prctl.end());
  return program;
}

/// Adds one rule; a name that this libseccomp or architecture does not know is passed over: such a
/// call gets the default answer.
bool add_rule(scmp_filter_ctx filter, uint32_t action, const char* name,
              const std::vector<scmp_arg_cmp>& conditions = {}) {
  const int number = seccomp_syscall_resolve_name(name);
  if (number < 0) return true;
  const int result = seccomp_rule_add_array(
      filter, action, number, static_cast<unsigned>(conditions.size()), conditions.data());
  if (result != 0) std::fprintf(stderr, "seccomp_gen: %s: %s\n", name, std::strerror(-result));
  return result == 0;
}

bool add_policy(scmp_filter_ctx filter) {
  bool good = true;
  for (const char* name : varve::guard::allowed_calls()) {
    good = add_rule(filter, SCMP_ACT_ALLOW, name) && good;
  }
  for (const char* name : varve::guard::refused_calls()) {
    good = add_rule(filter, SCMP_ACT_ERRNO(EPERM), name) && good;
  }
  for (const ArgumentRule& rule : varve::guard::argument_rules()) {
    std::vector<scmp_arg_cmp> conditions;
    conditions.push_back({rule.argument, SCMP_CMP_MASKED_EQ, rule.mask, rule.value});
    if (rule.second_mask != 0) {
      conditions.push_back(
          {rule.second_argument, SCMP_CMP_MASKED_EQ, rule.second_mask, rule.second_value});
    }
    good = add_rule(filter, SCMP_ACT_ALLOW, rule.call, conditions) && good;
  }
  return good;
}

bool compile_policy(Program& program) {
  scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ERRNO(ENOSYS));
  if (filter == nullptr) return false;
  // Level 2 is a binary tree: when a filter is installed the kernel evaluates it once for every
  // call number (its cache of plain allows), which a linear list makes a third of a millisecond.
  bool good = seccomp_attr_set(filter, SCMP_FLTATR_CTL_OPTIMIZE, 2) == 0 &&
              seccomp_attr_set(filter, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_ERRNO(ENOSYS)) == 0 &&
              add_policy(filter);
  std::FILE* file = std::tmpfile();
  good = good && file != nullptr && seccomp_export_bpf(filter, ::fileno(file)) == 0;
  seccomp_release(filter);
  if (!good) return false;
  std::rewind(file);
  sock_filter instruction;
  while (std::fread(&instruction, sizeof instruction, 1, file) == 1) program.push_back(instruction);
  std::fclose(file);
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: seccomp_gen OUTPUT\n");
    return 2;
  }
  Program program = head(seccomp_arch_native());
  if (!compile_policy(program)) {
    std::fprintf(stderr, "seccomp_gen: cannot compile the policy\n");
    return 1;
  }
  std::FILE* out = std::fopen(argv[1], "we");
  if (out == nullptr) {
    std::perror(argv[1]);
    return 1;
  }
  std::fprintf(out, "// Generated by seccomp_gen from guard/seccomp_policy.cc.\n");
  for (const sock_filter& i : program) {
    std::fprintf(out, "{0x%02x, %u, %u, 0x%08x},\n", i.code, i.jt, i.jf, i.k);
  }
  return std::fclose(out) == 0 ? 0 : 1;
}
