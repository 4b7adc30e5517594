// SPDX-License-Identifier: Apache-2.0
#include "attach/bpf_object.h"

#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <time.h>

#include <cstdarg>
#include <cstdio>
#include <filesystem>
#include <mutex>
#include <optional>
#include <vector>

#include "attach/bpf_skeleton.h"
#include "base/unique_fd.h"

namespace ingero::attach {
namespace {

using model::AttachMethod;

enum bpf_attach_type attach_type_number(AttachMethod method) {
  switch (method) {
    case AttachMethod::kSession: return static_cast<enum bpf_attach_type>(57);
    case AttachMethod::kMulti: return static_cast<enum bpf_attach_type>(48);
    case AttachMethod::kPerf:
    case AttachMethod::kEntryOnly:
    case AttachMethod::kNone: break;
  }
  return static_cast<enum bpf_attach_type>(0);
}

/// Loads of one family's programs: those that the method attaches, with its attach type. No `on_return`:
/// only entries are looked at.
void select_programs(AttachMethod method, bpf_program* entry, bpf_program* on_return,
                     bpf_program* session) {
  const bool by_session = method == AttachMethod::kSession;
  bpf_program__set_autoload(session, by_session);
  bpf_program__set_autoload(entry, !by_session);
  if (on_return != nullptr)
    bpf_program__set_autoload(on_return, !by_session && method != AttachMethod::kEntryOnly);
  for (bpf_program* program : {entry, on_return, session})
    if (program != nullptr)
      bpf_program__set_expected_attach_type(program, attach_type_number(method));
}

ProgramSet program_set(const bpf_program* entry, const bpf_program* on_return,
                       const bpf_program* session) {
  return {bpf_program__fd(entry), bpf_program__fd(on_return), bpf_program__fd(session)};
}

Error load_error(int code, const LibbpfLog& log) {
  Error error = Error::from_errno(-code, "load BPF programs", "");
  if (!std::filesystem::exists("/sys/kernel/btf/vmlinux")) {
    error.cause = "no BTF at /sys/kernel/btf/vmlinux";
    error.hint = "use a kernel built with CONFIG_DEBUG_INFO_BTF (Debian 12 has it)";
  } else if (const std::string refusal = log.refusal(); !refusal.empty()) {
    // Not a lack of privileges, although the code may be EACCES.
    error.cause = "the kernel's verifier refuses " + refusal;
    error.hint = "this kernel cannot run the agent; please report it with these lines";
  } else if (-code == EPERM || -code == EACCES) {
    error.hint = "run as root, or give CAP_BPF and CAP_PERFMON";
  } else {
    error.cause += "; " + log.last_line();
    error.hint = "see `ingero check`";
  }
  return error;
}

}  // namespace

namespace {

/// How many arguments a BTF tracepoint of this kernel hands to programs; -1: there is none.
int arguments_of(const std::string& tracepoint) {
  const std::unique_ptr<btf, decltype(&btf__free)> kernel(btf__load_vmlinux_btf(), &btf__free);
  if (!kernel) return -1;
  const std::string name = "btf_trace_" + tracepoint;
  const int id = btf__find_by_name_kind(kernel.get(), name.c_str(), BTF_KIND_TYPEDEF);
  if (id < 0) return -1;
  const btf_type* pointer = btf__type_by_id(kernel.get(), btf__type_by_id(kernel.get(), id)->type);
  const btf_type* function = btf__type_by_id(kernel.get(), pointer->type);
  return btf_vlen(function) - 1;  // the first is the tracepoint's own
}

bool has_function(const char* name) {
  const std::unique_ptr<btf, decltype(&btf__free)> kernel(btf__load_vmlinux_btf(), &btf__free);
  return kernel && btf__find_by_name_kind(kernel.get(), name, BTF_KIND_FUNC) >= 0;
}

bool has_member(const char* structure, std::string_view name) {
  const std::unique_ptr<btf, decltype(&btf__free)> kernel(btf__load_vmlinux_btf(), &btf__free);
  const int id = kernel ? btf__find_by_name_kind(kernel.get(), structure, BTF_KIND_STRUCT) : -1;
  if (id < 0) return false;
  const btf_type* type = btf__type_by_id(kernel.get(), id);
  const btf_member* member = btf_members(type);
  for (int i = 0; i < btf_vlen(type); ++i)
    if (name == btf__name_by_offset(kernel.get(), member[i].name_off)) return true;
  return false;
}

/// Whether the kernel knows the tracepoint of "tp_btf/NAME".
bool has_tracepoint(std::string_view section) {
  return arguments_of(std::string(section.substr(section.find('/') + 1))) >= 0;
}

void destroy_links(std::vector<bpf_link*>& links) {
  for (bpf_link* link : links) bpf_link__destroy(link);
  links.clear();
}

/// All programs, or none.
Status switch_programs(bool on, std::initializer_list<bpf_program*> programs,
                       std::vector<bpf_link*>& links) {
  if (on != links.empty()) return {};
  if (!on) {
    destroy_links(links);
    return {};
  }
  for (bpf_program* program : programs) {
    const char* const name = bpf_program__name(program);
    bpf_link* const link = bpf_program__autoload(program) ? bpf_program__attach(program) : nullptr;
    if (link != nullptr) {
      links.push_back(link);
      continue;
    }
    const Error error = bpf_program__autoload(program)
                            ? Error::from_errno(errno, "attach tracepoint", name)
                            : Error{"attach tracepoint", name, "this kernel has none", "", 0};
    destroy_links(links);
    return fail(error);
  }
  return {};
}

}  // namespace

struct BpfObject::Parts {
  SkeletonPtr skeleton;
  std::vector<bpf_link*> links, network_links, scheduler_links, waits_links;
  UniqueFd call_ring;
  bool watches_scheduler = false;
  ~Parts() {
    for (auto* held : {&links, &network_links, &scheduler_links, &waits_links})
      destroy_links(*held);
  }
};

BpfObject::BpfObject(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {
  const auto& maps = parts_->skeleton->maps;
  handles_.calls = bpf_map__fd(maps.calls);
  handles_.folded_calls = bpf_map__fd(maps.folded_calls);
  handles_.errors = bpf_map__fd(maps.errors);
  handles_.unscaled = bpf_map__fd(maps.unscaled);
  handles_.processes = bpf_map__fd(maps.processes);
  handles_.process_changes = bpf_map__fd(maps.process_changes);
  handles_.comms = bpf_map__fd(maps.comms);
  handles_.pending = bpf_map__fd(maps.pending);
  handles_.streams = bpf_map__fd(maps.streams);
  handles_.shares = bpf_map__fd(maps.shares);
  handles_.shares_returned = bpf_map__fd(maps.shares_returned);
  handles_.layouts = bpf_map__fd(maps.layouts);
  handles_.traced_tgids = bpf_map__fd(maps.traced_tgids);
  handles_.retransmits = bpf_map__fd(maps.retransmits);
  handles_.waits = bpf_map__fd(maps.waits);
  handles_.policies = bpf_map__fd(maps.policies);
  handles_.known_files = bpf_map__fd(maps.known_files);
  handles_.traced_files = bpf_map__fd(maps.traced_files);
  handles_.losses = bpf_map__fd(maps.losses);
  handles_.lifecycle_events = bpf_map__fd(maps.lifecycle_events);
  handles_.call_rings = bpf_map__fd(maps.call_rings);
  handles_.running_processes_program = bpf_program__fd(parts_->skeleton->progs.running_processes);
  handles_.mapped_files_program = bpf_program__fd(parts_->skeleton->progs.mapped_files);
  handles_.held_sockets_program = bpf_program__fd(parts_->skeleton->progs.held_sockets);
}

BpfObject::~BpfObject() = default;

Result<std::unique_ptr<BpfObject>> BpfObject::create(const BpfOptions& options) {
  LibbpfLog log;
  auto parts = std::make_unique<Parts>();
  parts->skeleton = open_skeleton();
  if (!parts->skeleton) return fail(load_error(-errno, log));
  auto& progs = parts->skeleton->progs;
  auto& maps = parts->skeleton->maps;
  select_programs(options.method, progs.nccl_collective_entry, progs.nccl_collective_return,
                  progs.nccl_collective_session);
  select_programs(options.method, progs.nccl_lifecycle_entry, progs.nccl_lifecycle_return,
                  progs.nccl_lifecycle_session);
  select_programs(options.method, progs.cuda_copy_entry, progs.cuda_copy_return,
                  progs.cuda_copy_session);
  select_programs(options.method, progs.cuda_stream_sync_entry, progs.cuda_stream_sync_return,
                  progs.cuda_stream_sync_session);
  select_programs(options.method, progs.followed_entry, nullptr, progs.followed_session);
  for (bpf_program* program : {progs.selftest_entry, progs.selftest_return, progs.selftest_session,
                               progs.selftest_frame, progs.empty_probe})
    bpf_program__set_autoload(program, false);
  for (bpf_program* program : {progs.tcp_retransmit, progs.tcp_retransmit_synack})
    bpf_program__set_autoload(program, has_tracepoint(bpf_program__section_name(program)));
  bpf_program__set_autoload(progs.held_sockets, options.find_sockets &&
                                                    has_function("bpf_iter_task_file") &&
                                                    has_function("bpf_sock_from_file"));
  for (bpf_map* map : {maps.selftest_hits, maps.selftest_stacks})
    bpf_map__set_autocreate(map, false);
  if (!options.tail_calls) take_out_tail_calls(parts->skeleton.get());
  bpf_map__set_max_entries(maps.calls, options.call_entries);
  parts->skeleton->rodata->retransmit_tells_error = arguments_of("tcp_retransmit_skb") > 2 ? 1 : 0;
  parts->skeleton->rodata->switch_tells_state = arguments_of("sched_switch") > 3 ? 1 : 0;
  parts->skeleton->rodata->kernel_counts_waits = has_member("sched_info", "run_delay") ? 1 : 0;
  parts->skeleton->rodata->may_read_kernel = options.may_read_kernel ? 1 : 0;
  parts->skeleton->bss->settings = options.settings;
  if (const int code = load_skeleton(parts->skeleton.get()); code != 0) {
    const Error error = load_error(code, log);
    if (!options.find_sockets && !options.may_read_kernel) return fail(error);
    // What can be done without: the one program, then what helpers read of the kernel.
    BpfOptions less = options;
    if (options.find_sockets) less.find_sockets = false;
    else less.may_read_kernel = false;
    if (auto object = create(less)) return object;
    return fail(error);
  }
  for (bpf_program* program : {progs.process_exit, progs.process_exec}) {
    bpf_link* link = bpf_program__attach(program);
    if (!link) return fail_errno("attach tracepoint", bpf_program__name(program));
    parts->links.push_back(link);
  }
  return std::unique_ptr<BpfObject>(new BpfObject(std::move(parts)));
}

ProgramSet BpfObject::programs(api_family family) const {
  const auto& progs = parts_->skeleton->progs;
  switch (family) {
    case API_NCCL_COLLECTIVE:
      return program_set(progs.nccl_collective_entry, progs.nccl_collective_return,
                         progs.nccl_collective_session);
    case API_CUDA_COPY:
      return program_set(progs.cuda_copy_entry, progs.cuda_copy_return, progs.cuda_copy_session);
    case API_CUDA_STREAM_SYNC:
      return program_set(progs.cuda_stream_sync_entry, progs.cuda_stream_sync_return,
                         progs.cuda_stream_sync_session);
    case API_NCCL_GROUP_START:
    case API_NCCL_GROUP_END:
    case API_NCCL_COMM_INIT_RANK:
    case API_NCCL_COMM_INIT_SCALABLE:
    case API_NCCL_COMM_INIT_ALL:
    case API_NCCL_COMM_SPLIT:
    case API_NCCL_COMM_SHRINK:
    case API_NCCL_COMM_GROW:
    case API_NCCL_COMM_END:
    case API_NCCL_COMM_CALL:
    case API_NCCL_GET_UNIQUE_ID:
      return program_set(progs.nccl_lifecycle_entry, progs.nccl_lifecycle_return,
                         progs.nccl_lifecycle_session);
    case API_NCCL_COMM_POLL:
    case API_CUDA_SET_DEVICE:
    case API_CUDA_STREAM_END:
      return {bpf_program__fd(progs.followed_entry), -1, bpf_program__fd(progs.followed_session)};
    case API_FAMILY_NONE: break;
  }
  return {};
}

agent_settings count_everything() {
  agent_settings settings{};
  settings.unclassified.nccl_functions = ~0ULL;
  settings.unclassified.cuda = 1;
  return settings;
}

Status BpfObject::watch_network(bool on) {
  auto& progs = parts_->skeleton->progs;
  return switch_programs(on, {progs.tcp_retransmit, progs.tcp_retransmit_synack},
                         parts_->network_links);
}

Status BpfObject::watch_scheduler(bool on) {
  parts_->watches_scheduler = on;
  return attach_scheduler();
}

/// Before programs begin to see: nobody saw what threads did until then.
Status BpfObject::attach_scheduler() {
  auto& progs = parts_->skeleton->progs;
  auto& bss = *parts_->skeleton->bss;
  const bool on = parts_->watches_scheduler;
  const bool counted = parts_->skeleton->rodata->kernel_counts_waits != 0;
  const bool streamed = bss.settings.stream_waits_ns != 0 || bss.settings.stream_off_cpu_ns != 0;
  if (on && counted && parts_->waits_links.empty()) {
    timespec now{};
    ::clock_gettime(CLOCK_BOOTTIME, &now);
    bss.waits_since_ns = static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 +
                         static_cast<std::uint64_t>(now.tv_nsec);
    ++bss.waits_generation;
  }
  const bool times = on && (streamed || !counted);
  if (times && parts_->scheduler_links.empty()) ++bss.settings.scheduler_generation;
  if (auto status = switch_programs(on && counted, {progs.scheduler_count}, parts_->waits_links);
      !status)
    return status;
  return switch_programs(
      times, {progs.scheduler_wakeup, progs.scheduler_wakeup_new, progs.scheduler_switch},
      parts_->scheduler_links);
}

Result<int> BpfObject::open_stream(std::uint32_t bytes) {
  UniqueFd ring(bpf_map_create(BPF_MAP_TYPE_RINGBUF, "call_events", 0, 0, bytes, nullptr));
  if (!ring) return fail_errno("make ring buffer", "call_events");
  const std::uint32_t zero = 0;
  const int descriptor = ring.get();
  if (bpf_map_update_elem(handles_.call_rings, &zero, &descriptor, BPF_ANY) != 0)
    return fail_errno("hand the ring buffer to the programs", "call_rings");
  parts_->call_ring = std::move(ring);
  return descriptor;
}

void BpfObject::close_stream() {
  const std::uint32_t zero = 0;
  bpf_map_delete_elem(handles_.call_rings, &zero);
  parts_->call_ring.reset();
}

void BpfObject::wake_stream_reader(bool wanted) {
  __atomic_store_n(&parts_->skeleton->bss->stream_sleeps, wanted ? 1U : 0U, __ATOMIC_SEQ_CST);
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

Status BpfObject::stream_host_events(bool network, std::uint64_t waits_ns,
                                     std::uint64_t off_cpu_ns) {
  auto& settings = parts_->skeleton->bss->settings;
  settings.stream_network = network ? 1 : 0;
  settings.stream_waits_ns = waits_ns;
  settings.stream_off_cpu_ns = off_cpu_ns;
  return attach_scheduler();
}

void BpfObject::set_unclassified(const cgroup_policy& policy) {
  parts_->skeleton->bss->settings.unclassified = policy;
  policies_changed();
}

Status BpfObject::add_traced_file(const model::FileKey& file, std::uint32_t index) const {
  const file_key key{file.device, file.generation, file.inode};
  if (bpf_map_update_elem(handles_.traced_files, &key, &index, BPF_ANY) != 0)
    return fail_errno("note a traced file", "traced_files");
  __atomic_fetch_add(&parts_->skeleton->bss->settings.files_generation, 1, __ATOMIC_RELEASE);
  return {};
}

void BpfObject::remove_traced_file(const model::FileKey& file) const {
  const file_key key{file.device, file.generation, file.inode};
  bpf_map_delete_elem(handles_.traced_files, &key);
  __atomic_fetch_add(&parts_->skeleton->bss->settings.files_generation, 1, __ATOMIC_RELEASE);
}

void BpfObject::policies_changed() {
  // Released: who sees the new number sees what was written before it.
  __atomic_fetch_add(&parts_->skeleton->bss->settings.policy_generation, 1, __ATOMIC_RELEASE);
}

}  // namespace ingero::attach
