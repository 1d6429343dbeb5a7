// Build-time generator: compiles seccomp_policy.cc into the BPF program that is embedded in the
// launcher. `seccomp_gen OUTPUT` writes a C array initializer, one instruction a line.
//
// The program is one of four parts: blocks for ioctl and prctl, whose rules overlap in ways that
// libseccomp cannot order; a search for the calls whose arguments do not count; blocks for
// setrlimit and prlimit64, which get an answer that no other call does; libseccomp's program for
// the few other calls whose arguments count. Jumps in classic BPF are relative, so the parts are
// simply put one after the other, and what one does not answer falls through into the next.
//
// The search is over ranges of numbers with one answer. Its length counts twice in every launch:
// the kernel compiles the program, and evaluates it once for each call number (its cache of plain
// allows). libseccomp's own tree, which tells every number apart, was twice as long.
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <seccomp.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include "guard/seccomp_policy.h"

namespace {

using varve::guard::ArgumentRule;
using Program = std::vector<sock_filter>;

constexpr uint32_t kAllow = SECCOMP_RET_ALLOW;
constexpr uint32_t kRefuse = SECCOMP_RET_ERRNO | EPERM;
constexpr uint32_t kPretend = SECCOMP_RET_ERRNO;
constexpr uint32_t kNotATerminal = SECCOMP_RET_ERRNO | ENOTTY;
constexpr uint32_t kUnknownCall = SECCOMP_RET_ERRNO | ENOSYS;

sock_filter load(size_t offset) {
  return BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<uint32_t>(offset));
}
sock_filter answer(uint32_t value) {
  return BPF_STMT(BPF_RET | BPF_K, value);
}

/// A block that compares the accumulator with one value after the other. Those that get the same
/// answer jump to the same instruction.
class Cases {
 public:
  void add(sock_filter instruction) { block_.push_back(instruction); }
  /// "If the accumulator equals `value`, answer `result`".
  void add(uint32_t value, uint32_t result) {
    jumps_.emplace(result, block_.size());
    block_.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, 0));
  }
  Program finish(uint32_t otherwise) {
    block_.push_back(answer(otherwise));
    for (auto jump = jumps_.begin(); jump != jumps_.end();) {
      const uint32_t result = jump->first;
      for (; jump != jumps_.end() && jump->first == result; ++jump) {
        block_[jump->second].jt = static_cast<uint8_t>(block_.size() - jump->second - 1);
      }
      block_.push_back(answer(result));
    }
    return std::move(block_);
  }

 private:
  Program block_;
  std::multimap<uint32_t, size_t> jumps_;  // Answer -> instruction.
};

/// Offset of the low 32 bits of argument `index` (little-endian).
size_t low_word(unsigned index) {
  return offsetof(seccomp_data, args) + 8 * index;
}

Program ioctl_block() {
  using namespace varve::guard;
  Cases cases;
  cases.add(load(low_word(1)));
  cases.add(BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 0xffff));
  for (const uint16_t request : refused_ioctls()) cases.add(request, kRefuse);
  for (const uint16_t request : allowed_ioctls()) cases.add(request, kAllow);
  cases.add(BPF_STMT(BPF_ALU | BPF_RSH | BPF_K, 8));
  for (const uint8_t type : allowed_ioctl_types()) cases.add(type, kAllow);
  for (const uint8_t type : refused_ioctl_types()) cases.add(type, kRefuse);
  return cases.finish(kNotATerminal);
}

Program prctl_block() {
  Cases cases;
  cases.add(load(low_word(0)));
  for (const uint32_t option : varve::guard::refused_prctls()) cases.add(option, kRefuse);
  return cases.finish(kAllow);
}

Program setrlimit_block() {
  Cases cases;
  cases.add(load(low_word(0)));
  cases.add(RLIMIT_CORE, kPretend);
  return cases.finish(kAllow);
}

Program prlimit_block() {
  constexpr uint32_t kInit = 1;
  // Without a new limit it reads.
  Program block{load(low_word(2)), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 3),
                load(low_word(2) + 4), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 1),
                answer(kAllow)};
  Cases cases;
  cases.add(load(low_word(0)));
  cases.add(kInit, kRefuse);
  cases.add(load(low_word(1)));
  cases.add(RLIMIT_CORE, kPretend);
  const Program changes = cases.finish(kAllow);
  block.insert(block.end(), changes.begin(), changes.end());
  return block;
}

/// "If the accumulator equals `number`, go on with `block`", which answers in any case.
void add_block(Program& program, uint32_t number, const Program& block) {
  // The length of a jump has eight bits.
  if (block.size() > 255) std::abort();
  program.push_back(
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, static_cast<uint8_t>(block.size())));
  program.insert(program.end(), block.begin(), block.end());
}

enum class Reply { kUnknown, kRefused, kAllowed, kByArguments, kCount };

/// Call numbers from `first` on, up to the next range.
struct Range {
  uint32_t first;
  Reply reply;
};

std::vector<Range> replies_by_number() {
  std::map<uint32_t, Reply> replies;
  const auto add = [&replies](const char* name, Reply reply) {
    const int number = seccomp_syscall_resolve_name(name);
    // A name that this libseccomp or architecture does not know: such a call stays unknown.
    if (number >= 0) replies.emplace(static_cast<uint32_t>(number), reply);
  };
  for (const ArgumentRule& rule : varve::guard::argument_rules()) {
    add(rule.call, Reply::kByArguments);
  }
  for (const char* name : {"setrlimit", "prlimit64"}) add(name, Reply::kByArguments);
  for (const char* name : varve::guard::allowed_calls()) add(name, Reply::kAllowed);
  for (const char* name : varve::guard::refused_calls()) add(name, Reply::kRefused);
  std::vector<Range> ranges{{0, Reply::kUnknown}};
  const auto extend = [&ranges](uint32_t first, Reply reply) {
    if (ranges.back().first == first) {
      ranges.back().reply = reply;
    } else if (ranges.back().reply != reply) {
      ranges.push_back({first, reply});
    }
  };
  for (const auto& [number, reply] : replies) {
    extend(number, reply);
    if (!replies.contains(number + 1)) extend(number + 1, Reply::kUnknown);
  }
  return ranges;
}

/// A binary search for the number in the accumulator, between ends that answer.
class Search {
 public:
  explicit Search(std::vector<Range> ranges) : ranges_(std::move(ranges)) {}

  /// False when a jump would be too long for an instruction.
  bool build(Program& program) {
    add_node(program, 0, ranges_.size());
    size_t ends[static_cast<size_t>(Reply::kCount)];
    for (const auto& [reply, value] :
         {std::pair{Reply::kUnknown, kUnknownCall}, std::pair{Reply::kRefused, kRefuse},
          std::pair{Reply::kAllowed, kAllow}}) {
      ends[static_cast<size_t>(reply)] = program.size();
      program.push_back(answer(value));
    }
    ends[static_cast<size_t>(Reply::kByArguments)] = program.size();
    for (const Jump& jump : jumps_) {
      const size_t to = jump.to != 0 ? jump.to : ends[static_cast<size_t>(jump.reply)];
      const size_t distance = to - jump.from - 1;
      if (distance > 255) return false;
      (jump.is_true ? program[jump.from].jt : program[jump.from].jf) =
          static_cast<uint8_t>(distance);
    }
    return true;
  }

 private:
  struct Jump {
    size_t from;
    bool is_true;
    size_t to;  // 0: to the end that gives `reply`.
    Reply reply;
  };

  void add_node(Program& program, size_t begin, size_t end) {
    const size_t middle = (begin + end) / 2;
    const size_t at = program.size();
    program.push_back(BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, ranges_[middle].first, 0, 0));
    for (const bool is_true : {false, true}) {
      const size_t from = is_true ? middle : begin;
      const size_t to = is_true ? end : middle;
      const bool is_leaf = to - from == 1;
      jumps_.push_back({at, is_true, is_leaf ? 0 : program.size(), ranges_[from].reply});
      if (!is_leaf) add_node(program, from, to);
    }
  }

  const std::vector<Range> ranges_;
  std::vector<Jump> jumps_;
};

bool add_head(Program& program, uint32_t arch) {
  program.push_back(load(offsetof(seccomp_data, arch)));
  program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, arch, 1, 0));
  program.push_back(answer(kUnknownCall));
  program.push_back(load(offsetof(seccomp_data, nr)));
  add_block(program, SYS_ioctl, ioctl_block());
  add_block(program, SYS_prctl, prctl_block());
  if (!Search(replies_by_number()).build(program)) return false;
  // What the search has not answered.
  add_block(program, SYS_setrlimit, setrlimit_block());
  add_block(program, SYS_prlimit64, prlimit_block());
  return true;
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

bool add_argument_rules(scmp_filter_ctx filter) {
  bool good = true;
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

bool compile_argument_rules(Program& program) {
  scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ERRNO(ENOSYS));
  if (filter == nullptr) return false;
  bool good = seccomp_attr_set(filter, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_ERRNO(ENOSYS)) == 0 &&
              add_argument_rules(filter);
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
  Program program;
  if (!add_head(program, seccomp_arch_native()) || !compile_argument_rules(program)) {
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
