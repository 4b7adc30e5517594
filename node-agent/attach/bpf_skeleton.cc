// SPDX-License-Identifier: Apache-2.0
#include "attach/bpf_skeleton.h"

#include <bpf/libbpf.h>

#include <cstdarg>
#include <cstdio>
#include <mutex>
#include <vector>

namespace ingero::attach {
namespace {

std::mutex& log_mutex() {
  static std::mutex mutex;
  return mutex;
}

std::string& log_text() {
  static std::string text;
  return text;
}

int keep_message(enum libbpf_print_level level, const char* format, va_list arguments) {
  if (level == LIBBPF_DEBUG) return 0;
  char line[4096];
  const int size = std::vsnprintf(line, sizeof(line), format, arguments);
  if (size <= 0) return 0;
  const std::lock_guard lock(log_mutex());
  log_text() += line;
  // A verifier log can be long; its end names the instruction that was refused.
  if (log_text().size() > 65536) log_text().erase(0, log_text().size() - 32768);
  return 0;
}

}  // namespace

SkeletonPtr open_skeleton() { return SkeletonPtr(ingero_bpf__open()); }

void take_out_tail_calls(ingero_bpf* skeleton) {
  bpf_program* program = nullptr;
  bpf_object__for_each_program(program, skeleton->obj) {
    const bpf_insn* const first = bpf_program__insns(program);
    std::vector<bpf_insn> instructions(first, first + bpf_program__insn_cnt(program));
    for (bpf_insn& instruction : instructions) {
      if (instruction.code != (BPF_JMP | BPF_CALL) || instruction.src_reg != 0 ||
          instruction.imm != BPF_FUNC_tail_call)
        continue;
      // Of the same length, so that nothing moves: r0 = 0
      instruction = bpf_insn{BPF_ALU64 | BPF_MOV | BPF_K, BPF_REG_0, 0, 0, 0};
    }
    bpf_program__set_insns(program, instructions.data(), instructions.size());
  }
}

int load_skeleton(ingero_bpf* skeleton) { return ingero_bpf__load(skeleton); }

LibbpfLog::LibbpfLog() {
  const std::lock_guard lock(log_mutex());
  log_text().clear();
  libbpf_set_print(keep_message);
}

LibbpfLog::~LibbpfLog() { libbpf_set_print(nullptr); }

std::string LibbpfLog::last_line() const {
  const std::lock_guard lock(log_mutex());
  std::string text = log_text();
  while (!text.empty() && text.back() == '\n') text.pop_back();
  const auto at = text.rfind('\n');
  return at == std::string::npos ? text : text.substr(at + 1);
}

}  // namespace ingero::attach
