// SPDX-License-Identifier: Apache-2.0
#include "program/tally.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace ingero::workload {
namespace {

constexpr unsigned kRows = 512, kComms = 4096, kProcesses = 4096;
constexpr int kNcclInProgress = 7, kCudaNotReady = 600;

// Spins without a system call, as the strict seccomp filter of a scenario asks.
class SpinGuard {
 public:
  explicit SpinGuard(std::atomic<int>& lock) : lock_(lock) {
    while (lock_.exchange(1, std::memory_order_acquire) != 0) {
    }
  }
  ~SpinGuard() { lock_.store(0, std::memory_order_release); }
  SpinGuard(const SpinGuard&) = delete;
  SpinGuard& operator=(const SpinGuard&) = delete;

 private:
  std::atomic<int>& lock_;
};

template <std::size_t size>
void copy_text(char (&target)[size], std::string_view text) {
  const std::size_t length = std::min(text.size(), size - 1);
  std::memcpy(target, text.data(), length);
  target[length] = 0;
}

std::string quoted(std::string_view text) { return '"' + std::string(text) + '"'; }

std::string hex(const void* bytes, std::size_t size) {
  static constexpr char digits[] = "0123456789abcdef";
  std::string out;
  for (std::size_t i = 0; i < size; i++) {
    const unsigned char byte = static_cast<const unsigned char*>(bytes)[i];
    out += digits[byte >> 4];
    out += digits[byte & 15];
  }
  return out;
}

void drop_suffix(std::string& text, std::string_view suffix) {
  if (text.ends_with(suffix)) text.resize(text.size() - suffix.size());
}

// The name under which metrics show the function: twins, versions and spellings fall together.
std::string operation_of(std::string name) {
  drop_suffix(name, "_ptds");
  drop_suffix(name, "_ptsz");
  drop_suffix(name, "_v2");
  if (!name.starts_with("ncclComm")) drop_suffix(name, "Config");
  return name == "ncclAllToAll" ? "ncclAlltoAll" : name;
}

std::string row_json(const TallyRow& row) {
  std::string out = "{\"function\":" + quoted(row.function) +
                    ",\"operation\":" + quoted(operation_of(row.function)) +
                    ",\"direction\":" + quoted(row.direction) +
                    ",\"calls\":" + std::to_string(row.calls) +
                    ",\"errors\":" + std::to_string(row.errors) + ",\"errors_by_code\":{";
  std::string others;
  for (const auto& code : row.codes) {
    if (code.count == 0) break;
    const std::string entry = quoted(std::to_string(code.code)) + ":" + std::to_string(code.count);
    std::string& list = row.is_error(code.code) ? out : others;
    if (!list.empty() && list.back() != '{') list += ',';
    list += entry;
  }
  return out + "},\"pending_by_code\":{" + others + "},\"bytes\":" + std::to_string(row.bytes) +
         ",\"unreturned\":" + std::to_string(row.unreturned) +
         ",\"aliased\":" + std::to_string(row.aliased) + "}";
}

std::string comm_json(const CommRecord& comm) {
  char pointers[96];
  std::snprintf(pointers, sizeof(pointers), "{\"ptr\":\"0x%llx\",\"parent\":\"0x%llx\"",
                static_cast<unsigned long long>(comm.pointer),
                static_cast<unsigned long long>(comm.parent));
  return std::string(pointers) + ",\"rank\":" + std::to_string(comm.rank) +
         ",\"nranks\":" + std::to_string(comm.nranks) + ",\"pid\":" + std::to_string(comm.pid) +
         ",\"id_hex\":" + quoted(comm.has_id ? hex(&comm.id, sizeof(comm.id)) : "") +
         ",\"created_by\":" + quoted(comm.created_by) + "}";
}

}  // namespace

struct Tally::Page {
  std::atomic<int> lock;
  std::atomic<unsigned> rows_used, comms_used, processes;
  std::atomic<unsigned> comms_left_out;
  TallyRow rows[kRows];
  CommRecord comms[kComms];
  int pids[kProcesses];
};

bool TallyRow::is_error(int result) const {
  const bool nccl = std::strncmp(function, "nccl", 4) == 0;
  return result != 0 && result != (nccl ? kNcclInProgress : kCudaNotReady);
}

void TallyRow::count(int result, std::uint64_t message_bytes, bool by_alias) {
  calls.fetch_add(1, std::memory_order_relaxed);
  if (by_alias) aliased.fetch_add(1, std::memory_order_relaxed);
  if (result == 0 || !is_error(result)) bytes.fetch_add(message_bytes, std::memory_order_relaxed);
  if (result == 0) return;
  if (is_error(result)) errors.fetch_add(1, std::memory_order_relaxed);
  for (auto& entry : codes) {
    int expected = 0;
    if (!entry.code.compare_exchange_strong(expected, result) && expected != result) continue;
    entry.count.fetch_add(1, std::memory_order_relaxed);
    return;
  }
}

Tally::Tally(int descriptor) : descriptor_(descriptor) {
  if (descriptor_ < 0) {
    descriptor_ = memfd_create("ingero-tally", 0);
    if (descriptor_ < 0 || ftruncate(descriptor_, sizeof(Page)) != 0) {
      std::perror("ingero_workload: create the tally");
      std::exit(3);
    }
  }
  void* memory = mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor_, 0);
  if (memory == MAP_FAILED) {
    std::perror("ingero_workload: map the tally");
    std::exit(3);
  }
  page_ = static_cast<Page*>(memory);  // zero is a valid start value of every field
}

TallyRow& Tally::row(std::string_view function, std::string_view direction) {
  const auto find = [&](unsigned begin, unsigned end) -> TallyRow* {
    for (unsigned i = begin; i < end; i++)
      if (function == page_->rows[i].function && direction == page_->rows[i].direction)
        return &page_->rows[i];
    return nullptr;
  };
  const unsigned seen = page_->rows_used.load(std::memory_order_acquire);
  if (TallyRow* row = find(0, seen)) return *row;
  const SpinGuard guard(page_->lock);
  const unsigned used = page_->rows_used.load(std::memory_order_relaxed);
  if (TallyRow* row = find(seen, used)) return *row;
  if (used == kRows) std::abort();  // a scenario with more rows needs a larger page
  copy_text(page_->rows[used].function, function);
  copy_text(page_->rows[used].direction, direction);
  page_->rows_used.store(used + 1, std::memory_order_release);
  return page_->rows[used];
}

void Tally::add_comm(const CommRecord& record) {
  const SpinGuard guard(page_->lock);
  const unsigned used = page_->comms_used;
  if (used == kComms) {
    page_->comms_left_out++;
    return;
  }
  page_->comms[used] = record;
  page_->comms_used = used + 1;
}

void Tally::add_process() {
  const unsigned index = page_->processes.fetch_add(1);
  if (index < kProcesses) page_->pids[index] = getpid();
}

void Tally::append_json(std::string& out) const {
  out += "\"functions\":[";
  for (unsigned i = 0; i < page_->rows_used; i++)
    out += (i ? ",\n" : "\n") + row_json(page_->rows[i]);
  out += "],\"comms\":[";
  for (unsigned i = 0; i < page_->comms_used; i++)
    out += (i ? ",\n" : "\n") + comm_json(page_->comms[i]);
  out += "],\"comms_left_out\":" + std::to_string(page_->comms_left_out) +
         ",\"processes\":" + std::to_string(page_->processes) + ",\"pids\":[";
  for (unsigned i = 0; i < std::min(page_->processes.load(), kProcesses); i++)
    out += (i ? "," : "") + std::to_string(page_->pids[i]);
  out += "]";
}

}  // namespace ingero::workload
