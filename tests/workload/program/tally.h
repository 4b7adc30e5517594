// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

#include "stubs/nccl_abi.h"

namespace ingero::workload {

// One function in one direction. Lives in shared memory: no pointers.
struct TallyRow {
  static constexpr int kCodes = 16;
  struct Code {
    std::atomic<int> code;
    std::atomic<std::uint64_t> count;
  };

  char function[48];
  char direction[8];
  std::atomic<std::uint64_t> calls;       // calls that returned
  std::atomic<std::uint64_t> errors;      // of these, returned an error
  std::atomic<std::uint64_t> bytes;       // of those without an error
  std::atomic<std::uint64_t> unreturned;  // left by longjmp: an entry without a return
  std::atomic<std::uint64_t> aliased;     // of `calls`, made by the pncclX name
  Code codes[kCodes];

  // A result of "still running" (ncclInProgress, cudaErrorNotReady) is no error.
  void count(int result, std::uint64_t message_bytes, bool by_alias);
  bool is_error(int result) const;
};

struct CommRecord {
  char created_by[32];
  std::uint64_t pointer, parent;
  int rank, nranks, pid;
  bool has_id;
  ncclUniqueId id;
};

// The program's own count, in memory that forked children share and an exec'ed image maps again.
class Tally {
 public:
  // A negative descriptor makes a new tally, else the one behind it is mapped.
  explicit Tally(int descriptor);
  Tally(const Tally&) = delete;
  Tally& operator=(const Tally&) = delete;

  TallyRow& row(std::string_view function, std::string_view direction);
  void add_comm(const CommRecord& record);
  void add_process();
  int descriptor() const { return descriptor_; }

  // Fields of the result that the tally itself knows: functions, comms, pids.
  void append_json(std::string& out) const;

 private:
  struct Page;
  int descriptor_;
  Page* page_;
};

}  // namespace ingero::workload
