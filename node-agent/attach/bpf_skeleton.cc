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

/// Where libbpf finds bpf_probe_read_kernel closed (lockdown=confidentiality), it takes bpf_probe_read_user for
/// unknown too and puts the old bpf_probe_read in its place, which is closed as well. Our uprobes read only
/// the user's memory, which stays open.
int read_user_memory(bpf_program* program, bpf_prog_load_opts*, long) {
  const bpf_insn* const first = bpf_program__insns(program);
  std::vector<bpf_insn> instructions(first, first + bpf_program__insn_cnt(program));
  for (bpf_insn& instruction : instructions) {
    if (instruction.code != (BPF_JMP | BPF_CALL) || instruction.src_reg != 0) continue;
    if (instruction.imm == BPF_FUNC_probe_read) instruction.imm = BPF_FUNC_probe_read_user;
    if (instruction.imm == BPF_FUNC_probe_read_str) instruction.imm = BPF_FUNC_probe_read_user_str;
  }
  return bpf_program__set_insns(program, instructions.data(), instructions.size());
}

void register_uprobe_handler() {
  static const int registered = [] {
    libbpf_prog_handler_opts options{};
    options.sz = sizeof(options);
    options.prog_prepare_load_fn = read_user_memory;
    return libbpf_register_prog_handler("uprobe", BPF_PROG_TYPE_KPROBE,
                                        static_cast<enum bpf_attach_type>(0), &options);
  }();
  static_cast<void>(registered);  // without it only lockdown=confidentiality is refused
}

}  // namespace

SkeletonPtr open_skeleton() {
  register_uprobe_handler();
  return SkeletonPtr(ingero_bpf__open());
}

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

std::string LibbpfLog::refusal() const {
  const std::lock_guard lock(log_mutex());
  const std::string& text = log_text();
  const auto end = text.rfind("-- END PROG LOAD LOG --");
  if (end == std::string::npos) return "";
  std::vector<std::string_view> lines;  // the last first
  std::string_view rest = std::string_view(text).substr(0, end);
  while (!rest.empty() && lines.size() < 3) {
    const auto at = rest.find_last_of('\n');
    const std::string_view line = at == std::string_view::npos ? rest : rest.substr(at + 1);
    rest = rest.substr(0, at == std::string_view::npos ? 0 : at);
    if (!line.empty() && !line.starts_with("processed ")) lines.push_back(line);
  }
  std::string refusal;
  const auto quote = text.find('\'', end);  // "libbpf: prog 'NAME': failed to load: -13"
  const auto close = quote == std::string::npos ? quote : text.find('\'', quote + 1);
  if (close != std::string::npos) refusal = text.substr(quote + 1, close - quote - 1) + ": ";
  for (auto line = lines.rbegin(); line != lines.rend(); ++line)
    refusal.append(line == lines.rbegin() ? "" : " | ").append(*line);
  return refusal;
}

}  // namespace ingero::attach
