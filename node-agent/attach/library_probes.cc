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

tl::unexpected<Error> written_to(std::string cause) {
  return fail({"attach probes", "", std::move(cause), "it is tried again later", ETXTBSY});
}

}  // namespace

LibraryProbes::Attach LibraryProbes::prepare(const LibraryTarget& target,
                                             std::shared_ptr<const UniqueFd> fd,
                                             Unchanged unchanged) {
  std::shared_future<void> closing;
  if (const auto it = closing_.find(target.file); it != closing_.end()) closing = it->second;
  // Before the probes: the first call may make others.
  if (auto noted = bpf_.add_traced_file(target.file, target.index); !noted)
    return
        [error = noted.error()]() -> Result<std::shared_ptr<GuardedFile>> { return fail(error); };
  // Owns all it touches: it may end after this object.
  return [method = method_, file = target.file, groups = group_by_program(bpf_, target),
          fd = std::move(fd), unchanged = std::move(unchanged), guards = guards_,
          closing]() -> Result<std::shared_ptr<GuardedFile>> {
    if (closing.valid() && closing.wait_for(kCloseWait) != std::future_status::ready)
      return fail({"attach probes", "", "the probes of its last users are still being removed",
                   "it is tried again later", EBUSY});
    auto guarded = guards->guard(file, fd);
    if (!guarded) return fail(guarded.error());
    if (!unchanged(fd->get())) return written_to("it was written to since it was looked into");
    auto links = attach_groups(method, groups, fd->get());
    if (!links) return fail(links.error());
    if (!(*guarded)->arm(std::move(*links)))
      return written_to("somebody opened it for writing meanwhile");
    return guarded;
  };
}

bool LibraryProbes::hold(std::shared_ptr<GuardedFile> file) {
  if (file->is_broken()) return false;
  const model::FileKey key = file->file();
  files_.insert_or_assign(key, std::move(file));
  return true;
}

bool LibraryProbes::is_leased(const model::FileKey& file) const {
  const auto it = files_.find(file);
  return it != files_.end() && it->second->kind() == GuardKind::kLease && !it->second->is_broken();
}

std::size_t LibraryProbes::descriptors_of(const LibraryTarget& target) const {
  constexpr std::size_t kEventAndLink = 2;
  switch (method_) {
    case model::AttachMethod::kSession: return 1 + group_by_program(bpf_, target).size();
    case model::AttachMethod::kMulti: return 1 + 2 * group_by_program(bpf_, target).size();
    case model::AttachMethod::kPerf: return 1 + 2 * kEventAndLink * target.points.size();
    case model::AttachMethod::kEntryOnly: return 1 + kEventAndLink * target.points.size();
    case model::AttachMethod::kNone: return 0;
  }
  return 0;
}

/// The guard stays until nothing is left of the probes: until then a writer waits.
void LibraryProbes::close(std::shared_ptr<GuardedFile> file) {
  std::erase_if(closing_, [](const auto& entry) {
    return entry.second.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  });
  const model::FileKey key = file->file();
  auto links = file->disarm();
  closing_.insert_or_assign(key, reaper_.close(std::move(links), std::move(file)));
}

LibraryProbes::~LibraryProbes() {
  for (auto& [key, file] : files_) close(std::move(file));
  guards_->stop();
}

void LibraryProbes::leave_to_child() {
  std::vector<UprobeLink> links;
  std::vector<UniqueFd> leases;
  for (auto& [key, file] : files_) {
    for (UprobeLink& link : file->disarm()) links.push_back(std::move(link));
    leases.push_back(file->leave_lease());
  }
  files_.clear();
  reaper_.leave_to_child(std::move(links), std::move(leases));
}

void LibraryProbes::detach(const model::FileKey& file) {
  bpf_.remove_traced_file(file);
  const auto it = files_.find(file);
  if (it == files_.end()) return;
  close(std::move(it->second));
  files_.erase(it);
}

}  // namespace ingero::attach
