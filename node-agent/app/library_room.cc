// SPDX-License-Identifier: Apache-2.0
#include "app/library_room.h"

#include <sys/resource.h>

#include <algorithm>

#include "bpf/wire.h"

namespace ingero::app {
namespace {

constexpr std::size_t kShares = 8;         // of the descriptors one container gets one
constexpr std::size_t kFilesOfAnyone = 4;  // NCCL, cudart, libcuda, and one more
constexpr std::size_t kOtherDescriptors = 256;

tl::unexpected<Error> full(std::string cause) {
  return fail({"attach probes", "", std::move(cause), "it is tried again later", ENOSPC});
}

}  // namespace

Status LibraryRoom::allows(const Used& used, std::size_t descriptors) const {
  if (held_.size() >= COOKIE_LIBRARY_MAX)
    return full(fmt::format("{} library files are attached already", held_.size()));
  if (descriptors_used_ + descriptors > descriptors_)
    return full(fmt::format("attached library files use all {} descriptors", descriptors_));
  if (used.files >= kFilesPerContainer)
    return full(fmt::format("its container has {} library files attached", used.files));
  if (used.files >= kFilesOfAnyone && used.descriptors + descriptors > descriptors_ / kShares)
    return full(fmt::format("its container's library files use {} of {} descriptors",
                            used.descriptors, descriptors_));
  return {};
}

Result<std::uint32_t> LibraryRoom::take(model::CgroupId container, std::size_t descriptors) {
  const auto it = used_.find(container);
  if (auto status = allows(it == used_.end() ? Used{} : it->second, descriptors); !status)
    return fail(status.error());
  std::uint32_t index = next_;
  if (next_ <= COOKIE_LIBRARY_MAX) {
    ++next_;
  } else {
    index = free_.front();
    free_.pop_front();
  }
  held_.emplace(index, Held{container, descriptors});
  Used& used = used_[container];
  ++used.files;
  used.descriptors += descriptors;
  descriptors_used_ += descriptors;
  return index;
}

void LibraryRoom::give_back(std::uint32_t index) {
  const auto it = held_.find(index);
  if (it == held_.end()) return;
  const Held held = it->second;
  held_.erase(it);
  free_.push_back(index);
  descriptors_used_ -= held.descriptors;
  const auto used = used_.find(held.container);
  used->second.descriptors -= held.descriptors;
  if (--used->second.files == 0) used_.erase(used);
}

std::size_t descriptors_for_libraries() {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  const std::size_t all = std::min<std::size_t>(limit.rlim_cur, 1 << 20);
  return all > 2 * kOtherDescriptors ? all - kOtherDescriptors : all / 2;
}

}  // namespace ingero::app
