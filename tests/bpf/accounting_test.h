// SPDX-License-Identifier: Apache-2.0
// Programs loaded by one method, attached to stub libraries in the test's own process.
#pragma once

#include <bpf/bpf.h>
#include <gtest/gtest.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <string>

#include "attach/library_probes.h"
#include "base/clock.h"
#include "collect/call_collector.h"
#include "discover/mapping_scanner.h"
#include "stub_library.h"

namespace ingero::testing {

using model::AttachMethod;
using Memcpy = int(void*, const void*, std::size_t, int);
using Memcpy2D = int(void*, std::size_t, const void*, std::size_t, std::size_t, std::size_t, int);
using AllReduce = int(const void*, void*, std::size_t, int, int, void*, void*);
using AllGather = int(const void*, void*, std::size_t, int, void*, void*);
using InitAll = int(void**, int, int*);
using Synchronize = int(void*);

constexpr int kFloat32 = 7;
constexpr int kBfloat16 = 9;

inline const std::string kStubs = INGERO_STUBS;

/// Why this kernel has no such method; empty: it has. By version, not by the agent's own trials: where those
/// go wrong, tests must fail and not be skipped.
inline std::string missing_here(AttachMethod method) {
  utsname kernel{};
  int major = 0, minor = 0;
  if (::uname(&kernel) != 0 || std::sscanf(kernel.release, "%d.%d", &major, &minor) != 2) return "";
  const int has = major * 1000 + minor;
  const auto since = [&](int wanted, const char* text) {
    return has >= wanted ? "" : "Linux " + std::string(kernel.release) + " has no " + text;
  };
  if (method == AttachMethod::kSession) return since(6013, "uprobe sessions (6.13)");
  if (method == AttachMethod::kMulti) return since(6006, "uprobe_multi (6.6)");
  return "";
}

class Accounting : public ::testing::TestWithParam<AttachMethod> {
 protected:
  void SetUp() override {
    if (const std::string missing = missing_here(GetParam()); !missing.empty())
      GTEST_SKIP() << missing;
    attach::BpfOptions options;
    options.method = GetParam();
    options.settings.entry_only = GetParam() == AttachMethod::kEntryOnly;
    options.settings.stream_calls = 1;
    auto bpf = attach::BpfObject::create(options);
    ASSERT_TRUE(bpf) << bpf.error().message();
    bpf_ = std::move(*bpf);
    const auto ring = bpf_->open_stream(1 << 20);
    ASSERT_TRUE(ring) << ring.error().message();
    ring_ = *ring;
    probes_ = std::make_unique<attach::LibraryProbes>(*bpf_, GetParam());
    collector_ = std::make_unique<collect::CallCollector>(bpf_->handles(), clock_);
  }

  /// Only what the test calls: to take a perf uprobe away costs up to 0.2 s.
  void attach(const StubLibrary& library, std::initializer_list<const char*> symbols) {
    const auto file = discover::MappingScanner(bpf_->handles()).identity_of(library.fd());
    ASSERT_TRUE(file) << file.error().message();
    attach::LibraryTarget target{*file, 0, {}};
    for (const char* symbol : symbols) {
      const auto& point = library.point(symbol);
      target.points.push_back({point.function, point.file_offset});
    }
    auto probes = probes_->prepare(target, std::make_shared<UniqueFd>(::dup(library.fd())),
                                   [](int) { return true; })();
    ASSERT_TRUE(probes) << probes.error().message();
    ASSERT_TRUE(probes_->hold(std::move(*probes)));
    file_ = target.file;
  }

  model::Snapshot read() {
    model::Snapshot snapshot;
    collector_->read(snapshot, collect::CallRows::by_process);
    return snapshot;
  }

  /// This process's totals of an operation (all of its symbols).
  model::CallTotals totals(const std::string& operation, int direction = -1) {
    model::CallTotals sum;
    for (const auto& series : read().calls) {
      const auto* function = model::find_api_function(series.function);
      if (function->operation != operation ||
          series.process.tgid != static_cast<unsigned>(::getpid()))
        continue;
      if (direction < 0 || series.direction == direction) sum.add(series.totals);
    }
    return sum;
  }

  bool entry_only() const { return GetParam() == AttachMethod::kEntryOnly; }

  Clock clock_;
  std::unique_ptr<attach::BpfObject> bpf_;
  int ring_ = -1;  ///< of streamed events
  std::unique_ptr<attach::LibraryProbes> probes_;
  std::unique_ptr<collect::CallCollector> collector_;
  model::FileKey file_;
};

}  // namespace ingero::testing
