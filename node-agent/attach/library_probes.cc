// SPDX-License-Identifier: Apache-2.0
#include "attach/library_probes.h"

#include <cerrno>
#include <chrono>
#include <map>

namespace ingero::attach {
namespace {

constexpr std::chrono::seconds kCloseWait{2};

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

Result<std::vector<UprobeLink>> attach_groups(model::AttachMethod method,
                                              const TargetsByProgram& groups, int fd) {
  // By descriptor: the path of a container means nothing, or worse, in the agent's own root.
  const std::string path = fmt::format("/proc/self/fd/{}", fd);
  std::vector<UprobeLink> links;
  for (const auto& [key, group] : groups) {
    auto link = UprobeLink::create(method, group.first, path, group.second);
    if (!link) return fail(link.error());
    links.push_back(std::move(*link));
  }
  return links;
}

}  // namespace

LibraryProbes::Attach LibraryProbes::prepare(const LibraryTarget& target,
                                             std::shared_ptr<const UniqueFd> fd) {
  std::shared_future<void> closing;
  if (const auto it = closing_.find(target.file); it != closing_.end()) closing = it->second;
  // Owns all it touches: it may end after this object.
  return [method = method_, groups = group_by_program(bpf_, target), fd = std::move(fd),
          closing]() -> Result<std::vector<UprobeLink>> {
    if (closing.valid() && closing.wait_for(kCloseWait) != std::future_status::ready)
      return fail({"attach probes", "", "the probes of its last users are still being removed",
                   "it is tried again later", EBUSY});
    return attach_groups(method, groups, fd->get());
  };
}

std::size_t LibraryProbes::descriptors_of(const LibraryTarget& target) const {
  constexpr std::size_t kEventAndLink = 2;
  switch (method_) {
    case model::AttachMethod::kSession: return group_by_program(bpf_, target).size();
    case model::AttachMethod::kMulti: return 2 * group_by_program(bpf_, target).size();
    case model::AttachMethod::kPerf: return 2 * kEventAndLink * target.points.size();
    case model::AttachMethod::kEntryOnly: return kEventAndLink * target.points.size();
    case model::AttachMethod::kNone: return 0;
  }
  return 0;
}

void LibraryProbes::hold(const model::FileKey& file, std::vector<UprobeLink> links) {
  links_.insert_or_assign(file, std::move(links));
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
