// SPDX-License-Identifier: Apache-2.0
// What a probed call costs, as CPU time of the calling thread, in one run and interleaved: without a
// probe, with an empty entry probe, an empty pair, and with the agent's full accounting by each method,
// recorded and not. The functions are those of the stub libraries, so that they begin as the real ones do;
// each way has a copy of the library, so that all are attached at once and the ways take turns quickly.
#include <bpf/libbpf.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "attach/bpf_object.h"
#include "attach/bpf_skeleton.h"
#include "attach/library_probes.h"
#include "collect/event_reader.h"
#include "stub_library.h"

namespace {

using namespace ingero;
using model::AttachMethod;
using testing::StubLibrary;
namespace fs = std::filesystem;

constexpr int kCalls =
    5000;  ///< of one turn: some milliseconds, so that what disturbs hits all ways
int rounds = 200;

double thread_cpu_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

[[noreturn]] void die(const std::string& why) {
  std::fprintf(stderr, "probe_cost: %s\n", why.c_str());
  std::exit(2);
}

using Call = std::function<void()>;

double cost_ns(const Call& call) {
  for (int i = 0; i < 100; ++i) call();
  const double start = thread_cpu_ns();
  for (int i = 0; i < kCalls; ++i) call();
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

std::unique_ptr<attach::BpfObject> load_agent(AttachMethod method, bool recorded = false) {
  attach::BpfOptions options;
  options.method = method;
  options.settings.stream_calls = recorded ? 1 : 0;
  auto bpf = attach::BpfObject::create(options);
  if (!bpf) die(bpf.error().message());
  return std::move(*bpf);
}

/// Empties the ring as the agent does, on a thread of its own.
class RingReader {
 public:
  explicit RingReader(attach::BpfObject& bpf) {
    const auto ring = bpf.open_stream(32 << 20);
    if (!ring) die(ring.error().message());
    auto reader =
        collect::EventReader::create(*ring, [](const event_header&, std::size_t) { return true; });
    if (!reader) die(reader.error().message());
    reader_ = std::move(*reader);
    thread_ = std::thread([this] {
      while (!stop_) {
        reader_->consume();
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
    });
  }
  ~RingReader() {
    stop_ = true;
    thread_.join();
  }
  RingReader(const RingReader&) = delete;
  RingReader& operator=(const RingReader&) = delete;

 private:
  std::unique_ptr<collect::EventReader> reader_;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

/// What all ways of one run are attached with.
struct Programs {
  EmptyProbe perf{AttachMethod::kPerf}, multi{AttachMethod::kMulti},
      session{AttachMethod::kSession};
  std::unique_ptr<attach::BpfObject> agent_session = load_agent(AttachMethod::kSession),
                                     agent_multi = load_agent(AttachMethod::kMulti),
                                     agent_perf = load_agent(AttachMethod::kPerf),
                                     recorded = load_agent(AttachMethod::kSession, true);
  RingReader reader{*recorded};
};

/// One way to probe a function, and what its calls took.
struct Way {
  std::string name;
  StubLibrary library;
  Call call;
  std::optional<attach::UprobeLink> link = std::nullopt;
  std::vector<double> costs = {};
};

using MakeCall = std::function<Call(const StubLibrary&)>;

class Measurement {
 public:
  Measurement(std::string source, std::string symbol, MakeCall make_call)
      : source_(std::move(source)), symbol_(std::move(symbol)), make_call_(std::move(make_call)) {}

  void add(const std::string& name, AttachMethod method, const attach::ProgramSet& programs,
           bool cookie) {
    Way& way = add_unprobed(name);
    const auto& point = way.library.point(symbol_);
    const attach::ProbeTarget target{point.file_offset, cookie ? point.function->cookie : 0};
    auto link = attach::UprobeLink::create(
        method, programs, "/proc/self/fd/" + std::to_string(way.library.fd()), {&target, 1});
    if (!link) die(link.error().message());
    way.link = std::move(*link);
  }

  Way& add_unprobed(const std::string& name) {
    static int copies = 0;  // a name that was loaded before would give the library of then
    const fs::path copy = folder_.path / (std::to_string(copies++) + ".so");
    fs::copy_file(source_, copy);
    StubLibrary library = StubLibrary::load(copy);
    Call call = make_call_(library);
    ways_.push_back({name, std::move(library), std::move(call)});
    return ways_.back();
  }

  void run() {
    for (int round = 0; round < rounds; ++round)
      for (Way& way : ways_) way.costs.push_back(cost_ns(way.call));
  }

  void print(const std::string& title) const {
    std::printf("%-34s   minimum   median     x uprobe  x session pair\n", title.c_str());
    for (const Way& way : ways_)
      std::printf("  %-32s %6.0f ns %6.0f ns   %5.2f %5.2f   %5.2f %5.2f\n", way.name.c_str(),
                  minimum(way.costs), median(way.costs), minimum(way.costs) / minimum(of(kUprobe)),
                  ratio(way, kUprobe), minimum(way.costs) / minimum(of(kPair)), ratio(way, kPair));
    std::fflush(stdout);
  }

  static constexpr const char* kUprobe = "empty uprobe (perf)";
  static constexpr const char* kPair = "empty pair, session";

 private:
  struct Folder {
    fs::path path = fs::temp_directory_path() / ("probe_cost." + std::to_string(::getpid()));
    Folder() { fs::create_directory(path); }
    ~Folder() { fs::remove_all(path); }
  };

  static double minimum(const std::vector<double>& values) {
    return *std::min_element(values.begin(), values.end());
  }
  static double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
  }
  const std::vector<double>& of(const std::string& name) const {
    return std::find_if(ways_.begin(), ways_.end(),
                        [&](const Way& way) { return way.name == name; })
        ->costs;
  }
  /// Median of the ratios within each round.
  double ratio(const Way& way, const std::string& base) const {
    std::vector<double> ratios;
    for (std::size_t i = 0; i < way.costs.size(); ++i) ratios.push_back(way.costs[i] / of(base)[i]);
    return median(ratios);
  }

  std::string source_, symbol_;
  MakeCall make_call_;
  Folder folder_;
  std::vector<Way> ways_;
};

void measure(const std::string& title, Programs& programs, const std::string& source,
             const std::string& symbol, api_family family, const MakeCall& make_call) {
  Measurement measurement(source, symbol, make_call);
  measurement.add_unprobed("no probe");
  measurement.add(Measurement::kUprobe, AttachMethod::kEntryOnly, programs.perf.programs(), false);
  for (const EmptyProbe* empty : {&programs.perf, &programs.multi, &programs.session})
    measurement.add("empty pair, " + std::string(to_string(empty->method())), empty->method(),
                    empty->programs(), false);
  measurement.add("full accounting, perf", AttachMethod::kPerf,
                  programs.agent_perf->programs(family), true);
  measurement.add("full accounting, multi", AttachMethod::kMulti,
                  programs.agent_multi->programs(family), true);
  measurement.add("full accounting, session", AttachMethod::kSession,
                  programs.agent_session->programs(family), true);
  measurement.add("recorded, session", AttachMethod::kSession, programs.recorded->programs(family),
                  true);
  measurement.run();
  measurement.print(title);
}

char from[64], to[64];

Call copy_call(const StubLibrary& library) {
  auto* function = library.function<int(void*, const void*, std::size_t, int)>("cudaMemcpy");
  return [function] { function(to, from, 64, 1); };
}

Call reduce_call(const StubLibrary& library) {
  auto* function = library.function<int(const void*, void*, std::size_t, int, int, void*, void*)>(
      "ncclAllReduce");
  void* comm = nullptr;
  int device = 0;
  if (library.function<int(void**, int, int*)>("ncclCommInitAll")(&comm, 1, &device) != 0)
    die("stub library");
  return [=] { function(from, to, 16, 7, 0, comm, reinterpret_cast<void*>(8)); };
}

/// Attaches nothing: what a call costs under the probes that somebody else holds.
double bare_cost(const std::string& path) {
  const auto library = StubLibrary::load(path);
  const Call call = copy_call(library);
  std::vector<double> costs;
  for (int round = 0; round < 100; ++round) costs.push_back(cost_ns(call));
  std::sort(costs.begin(), costs.end());
  return costs[costs.size() / 2];
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
  Programs programs;
  for (const std::string variant : {"push", "endbr"}) {
    const std::string folder = std::string(argv[1]) + "/" + variant;
    measure("cudaMemcpy, begins with " + variant, programs, folder + "/libcudart.so.13",
            "cudaMemcpy", API_CUDA_COPY, copy_call);
    measure("ncclAllReduce, begins with " + variant, programs, folder + "/libnccl.so.2",
            "ncclAllReduce", API_NCCL_COLLECTIVE, reduce_call);
  }
  return 0;
}
