// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>

#include "attach/uprobe_link.h"
#include "base/result.h"
#include "bpf/api_functions.h"
#include "bpf/wire.h"
#include "model/bpf_handles.h"
#include "model/identity.h"
#include "model/snapshot.h"

namespace ingero::attach {

/// Settings under which every call counts.
agent_settings count_everything();

struct BpfOptions {
  model::AttachMethod method = model::AttachMethod::kSession;
  agent_settings settings = count_everything();
  /// Programs hold a tail call that is never made: needed where the kernel would else run them on a
  /// processor's stack (see choose_thread_stack()).
  bool tail_calls = true;
  /// Helpers may read the kernel's memory: not under lockdown=confidentiality.
  bool may_read_kernel = true;
  bool find_sockets = false;  ///< the iterator that finds who holds a socket, where the kernel can
  std::uint32_t call_entries = 16384;  ///< counter sets: process x function x direction
};

/// The loaded BPF programs and maps. Exit and exec tracepoints are attached; uprobes are not.
class BpfObject {
 public:
  /// Errors: no BTF, missing capabilities, a program that the kernel refuses (the verifier's last
  /// lines are in the cause).
  static Result<std::unique_ptr<BpfObject>> create(const BpfOptions& options);
  ~BpfObject();
  BpfObject(const BpfObject&) = delete;
  BpfObject& operator=(const BpfObject&) = delete;

  const model::BpfHandles& handles() const { return handles_; }

  /// Makes the ring buffer of streamed events; its descriptor. `bytes`: a power of two. From here on
  /// what the settings and policies want streamed goes there.
  Result<int> open_stream(std::uint32_t bytes);
  /// What is not read by then is gone.
  void close_stream();
  /// Whether the next event that is streamed wakes those who wait on the ring; it does so once. Who asks must
  /// look whether the ring is empty afterwards, before it sleeps.
  void wake_stream_reader(bool wanted);
  /// What beside calls is streamed: retransmissions, and waits for a processor and off-CPU spans of these
  /// lengths or more (0: none). An error: waits and spans are not.
  Status stream_host_events(bool network, std::uint64_t waits_ns, std::uint64_t off_cpu_ns);

  /// The programs that handle a family of functions.
  ProgramSet programs(api_family family) const;

  /// Calls that code of this file makes inside of a call are parts of it.
  Status add_traced_file(const model::FileKey& file, std::uint32_t index) const;
  void remove_traced_file(const model::FileKey& file) const;

  /// What counts in cgroups that are not in the map `policies`.
  void set_unclassified(const cgroup_policy& policy);
  /// Counts TCP retransmissions; false: no longer. An error: this kernel has no such tracepoint.
  Status watch_network(bool on);
  /// Times the waits for a processor, of processes that are watched; false: no longer. Costs something
  /// at every switch of tasks on the host, so it is for hosts with something to watch.
  Status watch_scheduler(bool on);

  /// To be called after each change of the map `policies`. Takes effect at the next call that any
  /// traced thread makes.
  void policies_changed();

 private:
  struct Parts;
  explicit BpfObject(std::unique_ptr<Parts> parts);
  Status attach_scheduler();

  std::unique_ptr<Parts> parts_;
  model::BpfHandles handles_;
};

struct MethodTrial {
  model::AttachMethod method = model::AttachMethod::kNone;
  bool works = false;
  std::string detail;  ///< why not
};

/// Attaches by each method to a function of the agent's own and calls it: best method first.
/// A version number or a successful load proves nothing (facts of kernels differ).
std::vector<MethodTrial> try_attach_methods();

/// On whose stack a program with a frame as large as ours ran, with the tail call in it or without.
struct StackTrial {
  bool on_thread_stack = false;
  std::string detail;  ///< why not
};
StackTrial try_thread_stack(model::AttachMethod method, bool tail_call);

/// Whether this kernel needs the tail call (BpfOptions::tail_calls). An error: programs run on a stack of
/// the processor all the same, where one that is preempted is written over: they must not be attached.
Result<bool> choose_thread_stack(model::AttachMethod method);

/// Whether a process under a strict seccomp filter survives return probes; tried with a child.
struct SeccompTrial {
  bool survives = false;
  bool tried = false;
  std::string detail;
};
SeccompTrial try_return_probe_under_seccomp(model::AttachMethod method);

}  // namespace ingero::attach
