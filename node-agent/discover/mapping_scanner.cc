// SPDX-License-Identifier: Apache-2.0
#include "discover/mapping_scanner.h"

#include <bpf/bpf.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>

#include "bpf/wire.h"
#include "discover/iterator_records.h"

namespace ingero::discover {
namespace {

constexpr std::size_t kPage = 4096;
constexpr const char* kTaskIterator = "iter/task";
constexpr const char* kVmaIterator = "iter/task_vma";
constexpr std::size_t kTrialRecords = 256;
constexpr auto kTrialTime = std::chrono::milliseconds(200);

/// One readable and executable page of a file in the agent's own address space.
class ProbeMapping {
 public:
  explicit ProbeMapping(int fd)
      : address_(::mmap(nullptr, kPage, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0)) {}
  ~ProbeMapping() {
    if (valid()) ::munmap(address_, kPage);
  }
  ProbeMapping(const ProbeMapping&) = delete;
  ProbeMapping& operator=(const ProbeMapping&) = delete;
  bool valid() const { return address_ != MAP_FAILED; }
  std::uint64_t address() const { return reinterpret_cast<std::uint64_t>(address_); }

 private:
  void* address_;
};

FileMapping to_mapping(const mapping_record& record) {
  FileMapping mapping;
  mapping.process = {record.tgid, record.process_start_ns};
  mapping.cgroup = static_cast<model::CgroupId>(record.cgroup_id);
  mapping.file = {record.device, record.generation, record.inode};
  mapping.version = {record.version.size, record.version.mtime_ns, record.version.ctime_ns};
  mapping.file_system = record.file_system;
  mapping.tid = record.tid;
  mapping.start = record.vm_start;
  mapping.end = record.vm_end;
  mapping.comm.assign(record.comm, ::strnlen(record.comm, sizeof(record.comm)));
  if (record.path_size > 0 && record.path_size <= sizeof(record.path))
    mapping.path.assign(record.path, ::strnlen(record.path, record.path_size));
  return mapping;
}

}  // namespace

MappingScanner::MappingScanner(const model::BpfHandles& handles)
    : handles_(handles), single_(try_single()) {}

/// Asks for this very thread: a kernel that does not know the question walks over everybody, or refuses.
bool MappingScanner::try_single() const {
  const auto self = static_cast<std::uint32_t>(::getpid());
  const auto walked = walk(WalkOver{self, 0}, {kTrialTime, kTrialRecords});
  return walked && !walked->mappings.empty() &&
         std::all_of(walked->mappings.begin(), walked->mappings.end(),
                     [&](const FileMapping& mapping) { return mapping.process.tgid == self; });
}

Result<std::vector<RunningProcess>> MappingScanner::list(const WalkOver& over) const {
  std::vector<RunningProcess> found;
  auto iterator = open_iterator(handles_.running_processes_program, kTaskIterator, over);
  if (!iterator) return fail(iterator.error());
  if (!*iterator) return found;
  const auto read = read_iterator<process_record>(
      iterator->get(), kTaskIterator, {}, [&](const process_record& record) {
        found.push_back({{record.tgid, record.process_start_ns},
                         static_cast<model::CgroupId>(record.cgroup_id),
                         record.tid,
                         record.mappings});
      });
  if (!read) return fail(read.error());
  return found;
}

Result<std::vector<RunningProcess>> MappingScanner::processes() const { return list({}); }

Result<std::optional<RunningProcess>> MappingScanner::find_process(std::uint32_t pid) const {
  // The threads are asked only where the leader has ended: there may be many.
  for (const WalkOver over : {WalkOver{pid, 0}, WalkOver{0, pid}}) {
    const auto found = list(single_ ? over : WalkOver{});
    if (!found) return fail(found.error());
    for (const RunningProcess& process : *found)
      if (process.process.tgid == pid) return process;
    if (!single_) break;
  }
  return std::optional<RunningProcess>{};
}

Result<Walk> MappingScanner::walk(const WalkOver& over, const WalkLimits& limits) const {
  Walk result;
  auto iterator = open_iterator(handles_.mapped_files_program, kVmaIterator, over);
  if (!iterator) return fail(iterator.error());
  if (!*iterator) return result;
  const auto read = read_iterator<mapping_record>(
      iterator->get(), kVmaIterator, limits,
      [&](const mapping_record& record) { result.mappings.push_back(to_mapping(record)); });
  if (!read) return fail(read.error());
  result.whole = *read;
  return result;
}

Result<Walk> MappingScanner::walk(const RunningProcess& process, const WalkLimits& limits) const {
  const std::uint32_t pid = process.process.tgid;
  if (!single_) {
    auto everybody = walk_host(limits);
    if (everybody)
      std::erase_if(everybody->mappings,
                    [&](const FileMapping& mapping) { return mapping.process.tgid != pid; });
    return everybody;
  }
  // A kernel before 6.12 does not find a thread that is no leader: then by way of the process, where
  // threads with descriptors of their own make the walk longer.
  auto walked = walk(WalkOver{process.tid, 0}, limits);
  if (process.tid == pid || !walked || !walked->mappings.empty()) return walked;
  return walk(WalkOver{0, pid}, limits);
}

Result<Walk> MappingScanner::walk_host(const WalkLimits& limits) const {
  return walk(WalkOver{}, limits);
}

Result<std::vector<FileMapping>> MappingScanner::scan_all() const {
  std::vector<FileMapping> mappings;
  if (!single_) {
    auto walked = walk_host({});
    if (!walked) return fail(walked.error());
    return std::move(walked->mappings);
  }
  const auto running = processes();
  if (!running) return fail(running.error());
  for (const RunningProcess& process : *running) {
    auto walked = walk(process, {});
    if (!walked) return fail(walked.error());
    std::move(walked->mappings.begin(), walked->mappings.end(), std::back_inserter(mappings));
  }
  return mappings;
}

Result<std::vector<FileMapping>> MappingScanner::scan_process(std::uint32_t pid) const {
  const auto process = find_process(pid);
  if (!process) return fail(process.error());
  if (!*process) return std::vector<FileMapping>{};
  auto walked = walk(**process, {});
  if (!walked) return fail(walked.error());
  return std::move(walked->mappings);
}

Result<model::FileKey> MappingScanner::identity_of(int fd) const {
  const ProbeMapping page(fd);
  if (!page.valid()) return fail_errno("map file", "one page", "is it on a noexec mount?");
  const auto mappings = scan_process(static_cast<std::uint32_t>(::getpid()));
  if (!mappings) return fail(mappings.error());
  const auto it = std::find_if(mappings->begin(), mappings->end(), [&](const FileMapping& mapping) {
    return mapping.start <= page.address() && page.address() < mapping.end;
  });
  if (it == mappings->end())
    return fail({"identify file", "one page of it", "the iterator does not show the mapping", ""});
  return it->file;
}

void MappingScanner::mark_uninteresting(const model::FileKey& file,
                                        const FileVersion& version) const {
  const file_key key{file.device, file.generation, file.inode};
  const file_version value{version.size, version.mtime_ns, version.ctime_ns};
  bpf_map_update_elem(handles_.known_files, &key, &value, BPF_ANY);
}

}  // namespace ingero::discover
