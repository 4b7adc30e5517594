// SPDX-License-Identifier: Apache-2.0
#include "discover/mapping_watcher.h"

#include <linux/perf_event.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstring>

namespace ingero::discover {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kDataBytes = 16 * kPage;  // per CPU
/// To wake somebody costs whoever maps 9 us, the record itself 0.8 us: the reader looks by itself, and is
/// woken only where records would be lost before it does.
constexpr std::size_t kWakeBytes = kDataBytes / 4;

perf_event_attr mmap_event() {
  perf_event_attr attr{};
  attr.size = sizeof(attr);
  attr.type = PERF_TYPE_SOFTWARE;
  attr.config = PERF_COUNT_SW_DUMMY;
  attr.mmap = 1;
  attr.mmap2 = 1;
  attr.sample_type = PERF_SAMPLE_TIME;
  attr.sample_id_all = 1;  // each record ends with its time
  attr.use_clockid = 1;
  attr.clockid = CLOCK_MONOTONIC;
  attr.watermark = 1;
  attr.wakeup_watermark = kWakeBytes;
  return attr;
}

/// The fixed part of a PERF_RECORD_MMAP2; the file name and the time follow.
struct Mmap2Record {
  perf_event_header header;
  std::uint32_t pid, tid;
  std::uint64_t address, length, page_offset;
  std::uint32_t major, minor;
  std::uint64_t inode, generation;
  std::uint32_t protection, flags;
};

/// Copies out of a ring whose data wrap around.
void copy_out(const char* data, std::uint64_t at, void* to, std::size_t size) {
  const std::size_t offset = at % kDataBytes;
  const std::size_t first = std::min(size, kDataBytes - offset);
  std::memcpy(to, data + offset, first);
  std::memcpy(static_cast<char*>(to) + first, data, size - first);
}

MappingHint to_hint(const std::vector<char>& bytes) {
  Mmap2Record record;
  std::memcpy(&record, bytes.data(), sizeof(record));
  MappingHint hint;
  hint.pid = record.pid;
  hint.device_inode = (std::uint64_t{record.major} << 52) ^ (std::uint64_t{record.minor} << 40) ^
                      record.inode ^ (record.generation << 20);
  const std::size_t end = bytes.size() - sizeof(std::uint64_t);
  std::memcpy(&hint.time_ns, bytes.data() + end, sizeof(hint.time_ns));
  hint.path.assign(bytes.data() + sizeof(record),
                   ::strnlen(bytes.data() + sizeof(record), end - sizeof(record)));
  return hint;
}

}  // namespace

Result<MappingWatcher> MappingWatcher::create() {
  MappingWatcher watcher;
  watcher.epoll_ = UniqueFd(::epoll_create1(EPOLL_CLOEXEC));
  if (!watcher.epoll_) return fail_errno("epoll_create1", "");
  const long cpus = ::sysconf(_SC_NPROCESSORS_CONF);
  for (int cpu = 0; cpu < cpus; ++cpu) {
    if (auto status = watcher.add_cpu(cpu); !status) return fail(status.error());
  }
  return watcher;
}

MappingWatcher::MappingWatcher(MappingWatcher&& other) noexcept
    : epoll_(std::move(other.epoll_)), rings_(std::move(other.rings_)) {}

MappingWatcher::~MappingWatcher() {
  for (Ring& ring : rings_) ::munmap(ring.memory, kPage + kDataBytes);
}

Status MappingWatcher::add_cpu(int cpu) {
  perf_event_attr attr = mmap_event();
  Ring ring;
  ring.fd = UniqueFd(
      static_cast<int>(::syscall(SYS_perf_event_open, &attr, -1, cpu, -1, PERF_FLAG_FD_CLOEXEC)));
  if (!ring.fd) {
    if (errno == ENODEV) return {};  // an offline CPU
    return fail_errno("watch mappings", fmt::format("cpu {}", cpu),
                      "needs CAP_PERFMON; with perf_event_paranoid 3 on Debian CAP_SYS_ADMIN");
  }
  ring.memory =
      ::mmap(nullptr, kPage + kDataBytes, PROT_READ | PROT_WRITE, MAP_SHARED, ring.fd.get(), 0);
  if (ring.memory == MAP_FAILED) return fail_errno("map perf ring", fmt::format("cpu {}", cpu));
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = rings_.size();
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, ring.fd.get(), &event);
  rings_.push_back(std::move(ring));
  return {};
}

MappingWatcher::Batch MappingWatcher::take(std::size_t max_records) {
  Batch batch;
  epoll_event events[64];
  ::epoll_wait(epoll_.get(), events, 64, 0);  // re-arms the descriptors that are drained below
  for (Ring& ring : rings_) drain(ring, max_records, batch);
  return batch;
}

void MappingWatcher::drain(Ring& ring, std::size_t max_records, Batch& batch) {
  auto* page = static_cast<perf_event_mmap_page*>(ring.memory);
  const char* data = static_cast<const char*>(ring.memory) + kPage;
  const std::uint64_t head = std::atomic_ref(page->data_head).load(std::memory_order_acquire);
  std::uint64_t tail = page->data_tail;
  std::vector<char> bytes;
  for (std::size_t taken = 0; tail < head && taken < max_records; ++taken) {
    perf_event_header header;
    copy_out(data, tail, &header, sizeof(header));
    if (header.size < sizeof(header)) {
      tail = head;
      break;
    }
    if (header.type == PERF_RECORD_LOST) batch.lost = true;
    if (header.type == PERF_RECORD_MMAP2 && header.size > sizeof(Mmap2Record)) {
      bytes.resize(header.size);
      copy_out(data, tail, bytes.data(), bytes.size());
      batch.hints.push_back(to_hint(bytes));
    }
    tail += header.size;
  }
  batch.more |= tail < head;
  std::atomic_ref(page->data_tail).store(tail, std::memory_order_release);
}

}  // namespace ingero::discover
