// SPDX-License-Identifier: Apache-2.0
#include "attach/library_probes.h"

#include <cerrno>
#include <chrono>
#include <map>

namespace ingero::attach {
namespace {

constexpr std::chrono::milliseconds kCloseWait{500};

/// Functions that the same programs handle go into one link.
using TargetsByProgram = std::map<int, std::pair<ProgramSet, std::vector<ProbeTarget>>>;

TargetsByProgram group_by_program(const BpfObject& bpf, const LibraryTarget& target) {
  TargetsByProgram groups;
  for (const LibraryTarget::Point& point : target.points) {
    const ProgramSet programs = bpf.programs(point.function->family);
    auto& group = groups[programs.session >= 0 ? programs.session : programs.entry];
    group.first = programs;
    const std::uint64_t library = std::uint64_t{target.index} << COOKIE_LIBRARY_SHIFT;
    group.second.push_back({point.offset, point.function->cookie | library});
  }
  return groups;
}

}  // namespace

Status LibraryProbes::attach(const LibraryTarget& target, int fd) {
  if (attached(target.file)) return {};
  if (auto status = wait_until_closed(target.file); !status) return status;
  // By descriptor: the path of a container means nothing, or worse, in the agent's own root.
  const std::string path = fmt::format("/proc/self/fd/{}", fd);
  std::vector<UprobeLink> links;
  for (const auto& [key, group] : group_by_program(bpf_, target)) {
    auto link = UprobeLink::create(method_, group.first, path, group.second);
    if (!link) {
      close(target.file, std::move(links));
      return fail(link.error());
    }
    links.push_back(std::move(*link));
  }
  links_.emplace(target.file, std::move(links));
  return {};
}

Status LibraryProbes::wait_until_closed(const model::FileKey& file) {
  const auto it = closing_.find(file);
  if (it == closing_.end()) return {};
  if (it->second.wait_for(kCloseWait) != std::future_status::ready)
    return fail({"attach probes", "", "the probes of its last users are still being removed",
                 "it is tried again at the next scan", EBUSY});
  closing_.erase(it);
  return {};
}

void LibraryProbes::close(const model::FileKey& file, std::vector<UprobeLink> links) {
  std::erase_if(closing_, [](const auto& entry) {
    return entry.second.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  });
  closing_.insert_or_assign(file, reaper_.close(std::move(links)));
}

LibraryProbes::~LibraryProbes() { reaper_.close(take_all()); }

std::vector<UprobeLink> LibraryProbes::take_all() {
  std::vector<UprobeLink> all;
  for (auto& [file, links] : links_)
    for (UprobeLink& link : links) all.push_back(std::move(link));
  links_.clear();
  return all;
}

void LibraryProbes::leave_to_child() {
  if (method_ == model::AttachMethod::kPerf || method_ == model::AttachMethod::kEntryOnly)
    reaper_.leave_to_child(take_all());
}

void LibraryProbes::detach(const model::FileKey& file) {
  const auto it = links_.find(file);
  if (it == links_.end()) return;
  close(file, std::move(it->second));
  links_.erase(it);
}

}  // namespace ingero::attach
