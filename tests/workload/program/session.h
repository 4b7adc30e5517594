// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include "program/library.h"
#include "program/options.h"
#include "program/tally.h"
#include "stubs/stub_control.h"

namespace ingero::workload {

// What a scenario works with; the libraries are loaded once the start signal is there.
struct Context {
  Options options;
  Library nccl, cudart, cuda;
  Tally* tally = nullptr;
  std::uint64_t deadline_ns = 0;  // monotonic, 0: none

  // The stub's switches, or null for a real library.
  static stub_control* control(const Library& library) {
    return static_cast<stub_control*>(library.symbol("stub_control"));
  }
};

std::uint64_t monotonic_ns();
std::uint64_t unix_ns();
// SIGTERM and SIGINT end the calls; the tally is still written.
void stop_on_signals();
bool stop_requested();

// One thread's calls: paced, counted around the call, ended by the deadline.
class Session {
 public:
  static constexpr int kNotCalled = -1;

  explicit Session(Context& context, int thread = 0) : context_(context), thread_(thread) {}

  Context& context() const { return context_; }
  int thread() const { return thread_; }
  bool expired() const;
  // True `calls` times (or `standard` times where --calls is absent), or until the deadline.
  bool next_round(std::uint64_t standard);
  std::uint64_t round() const { return round_ - 1; }
  void* stream() const { return reinterpret_cast<void*>(0x5000UL + 16UL * unsigned(thread_)); }
  void unpaced() { paced_ = false; }

  template <class Signature, class... Arguments>
  int call_row(TallyRow& row, const Function<Signature>& function, std::uint64_t bytes,
               Arguments... arguments) {
    if (function.pointer == nullptr || expired()) return kNotCalled;
    if (paced_) pace();
    const int result = function.pointer(arguments...);
    row.count(result, bytes, function.aliased);
    return result;
  }

  template <class Signature, class... Arguments>
  int call(const Function<Signature>& function, std::string_view direction, std::uint64_t bytes,
           Arguments... arguments) {
    if (function.pointer == nullptr) return kNotCalled;
    return call_row(context_.tally->row(function.name, direction), function, bytes, arguments...);
  }

  // Also made after the deadline: ending a group or a communicator.
  template <class Signature, class... Arguments>
  int call_always(const Function<Signature>& function, Arguments... arguments) {
    if (function.pointer == nullptr) return kNotCalled;
    const int result = function.pointer(arguments...);
    context_.tally->row(function.name, "").count(result, 0, function.aliased);
    return result;
  }

 private:
  void pace();

  Context& context_;
  int thread_;
  std::uint64_t round_ = 0;
  std::uint64_t next_ns_ = 0;
  bool paced_ = true;
};

// Runs `body` in --threads threads (the first is the calling one) and waits for all.
void run_threads(Context& context, int threads, const std::function<void(Session&)>& body);

}  // namespace ingero::workload
