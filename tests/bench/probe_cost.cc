// SPDX-License-Identifier: Apache-2.0
// What a probed call costs, as CPU time of the calling thread, in one run and interleaved: without a
// probe, with an empty entry probe, an empty pair, and with the agent's full accounting by each method.
// The functions are those of the stub libraries, so that they begin as the real ones do.
#include <bpf/libbpf.h>
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "attach/bpf_object.h"
#include "attach/bpf_skeleton.h"
#include "attach/library_probes.h"
#include "stub_library.h"

namespace {

using namespace ingero;
using model::AttachMethod;
using testing::StubLibrary;

constexpr int kCalls = 100000;
int rounds = 9;

double thread_cpu_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

[[noreturn]] void die(const std::string& why) {
  std::fprintf(stderr, "probe_cost: %s\n", why.c_str());
  std::exit(2);
}

struct Call {
  std::string name;
  std::function<void()> once;
};

double cost_ns(const Call& call) {
  for (int i = 0; i < 1000; ++i) call.once();
  const double start = thread_cpu_ns();
  for (int i = 0; i < kCalls; ++i) call.once();
  return (thread_cpu_ns() - start) / kCalls;
}

/// An empty program: what a probe costs before anything is done in it.
class EmptyProbe {
 public:
  explicit EmptyProbe(AttachMethod method) : method_(method), skeleton_(attach::open_skeleton()) {
    attach::LibbpfLog log;
    bpf_program* program = nullptr;
    bpf_object__for_each_program(program, skeleton_->obj) bpf_program__set_autoload(program, false);
    bpf_program__set_autoload(skeleton_->progs.empty_probe, true);
    bpf_program__set_expected_attach_type(
        skeleton_->progs.empty_probe,
        static_cast<enum bpf_attach_type>(method == AttachMethod::kSession ? 57
                                          : method == AttachMethod::kMulti ? 48
                                                                           : 0));
    bpf_map* map = nullptr;
    bpf_object__for_each_map(map, skeleton_->obj) {
      if (!bpf_map__is_internal(map)) bpf_map__set_autocreate(map, false);
    }
    if (attach::load_skeleton(skeleton_.get()) != 0) die("load empty probe: " + log.last_line());
  }
  attach::ProgramSet programs() const {
    const int fd = bpf_program__fd(skeleton_->progs.empty_probe);
    return {fd, fd, fd};
  }
  AttachMethod method() const { return method_; }

 private:
  AttachMethod method_;
  attach::SkeletonPtr skeleton_;
};

std::unique_ptr<attach::BpfObject> load_agent(AttachMethod method) {
  attach::BpfOptions options;
  options.method = method;
  options.settings.cgroup_source = CGROUP_V1_MEMORY;
  auto bpf = attach::BpfObject::create(options);
  if (!bpf) die(bpf.error().message());
  return std::move(*bpf);
}

using Samples = std::map<std::string, std::vector<double>>;

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void sample_probe(Samples& samples, const std::string& name, AttachMethod method,
                  const attach::ProgramSet& programs, const StubLibrary& library,
                  const std::string& symbol, std::uint64_t cookie, const Call& call) {
  const attach::ProbeTarget target{library.point(symbol).file_offset, cookie};
  const auto link = attach::UprobeLink::create(
      method, programs, "/proc/self/fd/" + std::to_string(library.fd()), {&target, 1});
  if (!link) die(link.error().message());
  samples[name].push_back(cost_ns(call));
}

void measure(const std::string& title, const StubLibrary& library, const std::string& symbol,
             const Call& call) {
  EmptyProbe perf(AttachMethod::kPerf), multi(AttachMethod::kMulti),
      session(AttachMethod::kSession);
  auto agent_session = load_agent(AttachMethod::kSession);
  auto agent_multi = load_agent(AttachMethod::kMulti);
  auto agent_perf = load_agent(AttachMethod::kPerf);
  const auto family = library.point(symbol).function->family;
  const auto cookie = library.point(symbol).function->cookie;
  Samples samples;
  for (int round = 0; round < rounds; ++round) {
    samples["1 no probe"].push_back(cost_ns(call));
    const auto entry_only = AttachMethod::kEntryOnly;
    sample_probe(samples, "2 empty uprobe (perf)", entry_only, perf.programs(), library, symbol, 0,
                 call);
    for (const EmptyProbe* empty : {&perf, &multi, &session})
      sample_probe(samples, "3 empty entry and return, " + std::string(to_string(empty->method())),
                   empty->method(), empty->programs(), library, symbol, 0, call);
    sample_probe(samples, "4 full accounting, session", AttachMethod::kSession,
                 agent_session->programs(family), library, symbol, cookie, call);
    sample_probe(samples, "4 full accounting, multi", AttachMethod::kMulti,
                 agent_multi->programs(family), library, symbol, cookie, call);
    sample_probe(samples, "4 full accounting, perf", AttachMethod::kPerf,
                 agent_perf->programs(family), library, symbol, cookie, call);
  }
  const double bare = median(samples["1 no probe"]);
  const double empty = median(samples["2 empty uprobe (perf)"]);
  std::printf("%s\n", title.c_str());
  for (const auto& [name, values] : samples) {
    const double value = median(values);
    std::printf("  %-36s %8.0f ns   %5.2fx the empty uprobe\n", name.c_str() + 2, value,
                value / empty);
  }
  std::printf("  (ratios of whole calls; the call itself takes %.0f ns)\n", bare);
}

/// Attaches nothing: what a call costs under the probes that somebody else holds.
double bare_cost(const std::string& library) {
  const auto cudart = StubLibrary::load(library);
  auto* memcpy_fn = cudart.function<int(void*, const void*, std::size_t, int)>("cudaMemcpy");
  static char a[64], b[64];
  std::vector<double> costs;
  for (int round = 0; round < 5; ++round)
    costs.push_back(cost_ns({"cudaMemcpy", [&] { memcpy_fn(a, b, 64, 1); }}));
  return median(costs);
}

}  // namespace

/// probe_cost STUB_FOLDER [ROUNDS]: the table. probe_cost --bare LIBCUDART: one number, in ns.
int main(int argc, char** argv) {
  if (argc < 2) die("usage: probe_cost STUB_FOLDER [ROUNDS] | --bare LIBCUDART");
  if (std::string(argv[1]) == "--bare" && argc > 2) {
    std::printf("%.1f\n", bare_cost(argv[2]));
    return 0;
  }
  if (argc > 2) rounds = std::max(1, std::atoi(argv[2]));
  for (const std::string variant : {"push", "endbr"}) {
    const std::string folder = std::string(argv[1]) + "/" + variant;
    const auto cudart = StubLibrary::load(folder + "/libcudart.so.13");
    const auto nccl = StubLibrary::load(folder + "/libnccl.so.2");
    auto* memcpy_fn = cudart.function<int(void*, const void*, std::size_t, int)>("cudaMemcpy");
    auto* reduce_fn = nccl.function<int(const void*, void*, std::size_t, int, int, void*, void*)>(
        "ncclAllReduce");
    auto* init_fn = nccl.function<int(void**, int, int*)>("ncclCommInitAll");
    void* comm = nullptr;
    int device = 0;
    if (init_fn(&comm, 1, &device) != 0) die("stub library");
    static char a[64], b[64];
    measure("cudaMemcpy, first instruction " + variant, cudart, "cudaMemcpy",
            {"cudaMemcpy", [&] { memcpy_fn(a, b, 64, 1); }});
    measure(
        "ncclAllReduce, first instruction " + variant, nccl, "ncclAllReduce",
        {"ncclAllReduce", [&] { reduce_fn(a, b, 16, 7, 0, comm, reinterpret_cast<void*>(8)); }});
  }
  return 0;
}
