// SPDX-License-Identifier: Apache-2.0
#include "discover/mapping_scanner.h"

#include <bpf/bpf.h>
#include <linux/bpf.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>

#include "bpf/wire.h"
#include "discover/iterator_records.h"

namespace ingero::discover {
namespace {

constexpr std::size_t kPage = 4096;

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

Result<std::vector<FileMapping>> MappingScanner::scan(std::uint32_t pid) const {
  bpf_iter_link_info info{};
  info.task.pid = pid;
  bpf_link_create_opts options{};
  options.sz = sizeof(options);
  if (pid != 0) {
    options.iter_info = &info;
    options.iter_info_len = sizeof(info);
  }
  UniqueFd link(bpf_link_create(handles_.mapped_files_program, 0, BPF_TRACE_ITER, &options));
  if (!link) {
    if (errno == ESRCH || errno == EINVAL)
      return std::vector<FileMapping>{};  // the process is gone
    return fail_errno("create iterator", "iter/task_vma", "needs CAP_BPF, CAP_PERFMON, Linux 6.1");
  }
  UniqueFd iterator(bpf_iter_create(link.get()));
  if (!iterator) return fail_errno("open iterator", "iter/task_vma");
  std::vector<FileMapping> mappings;
  const auto read = read_iterator<mapping_record>(
      iterator.get(), "iter/task_vma",
      [&](const mapping_record& record) { mappings.push_back(to_mapping(record)); });
  if (!read) return fail(read.error());
  return mappings;
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
