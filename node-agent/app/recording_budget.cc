// SPDX-License-Identifier: Apache-2.0
#include "app/recording_budget.h"

#include <fmt/format.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <set>

#include "base/byte_size.h"
#include "base/text.h"

namespace ingero::app {
namespace {

constexpr std::size_t kMaxRecordings = 16;  // at the same time
constexpr std::uint64_t kLeastRoom = 64 << 20;

}  // namespace

void RecordingBudget::set_config(const config::RecordingsConfig& config) {
  bytes_ = config.budget;
  keep_free_percent_ = config.keep_free_percent;
}

std::optional<std::string> RecordingBudget::refusal(const record::RecordingStore& store,
                                                    const std::vector<Claim>& active,
                                                    const Claim& wanted) const {
  if (bytes_ == 0) return "the setting recordings.budget is 0";
  if (wanted.max_bytes > bytes_)
    return fmt::format(
        "it may take {}, and all of the node's recordings {} (setting recordings.budget)",
        format_byte_size(wanted.max_bytes), format_byte_size(bytes_));
  if (active.size() >= kMaxRecordings)
    return fmt::format("{} pods are recorded on this node already", active.size());
  std::uint64_t promised = 0;
  for (const Claim& claim : active) promised += claim.max_bytes;
  if (wanted.max_bytes > bytes_ - std::min(promised, bytes_))
    return fmt::format(
        "it may take {}, but {} of the node's {} (setting recordings.budget) are promised to {} "
        "other recordings",
        format_byte_size(wanted.max_bytes), format_byte_size(promised), format_byte_size(bytes_),
        active.size());
  std::uint64_t kept_bytes = 0, other_bytes = 0;
  std::set<std::string> kept;
  for (const record::PodFile& file : store.list()) {
    const auto is_of = [&](const Claim& c) { return c.recording.is_of_same_recording(file); };
    const bool stays = is_of(wanted) || std::any_of(active.begin(), active.end(), is_of);
    if (stays) kept.insert(file.path);
    (stays ? kept_bytes : other_bytes) += file.bytes;
  }
  const std::uint64_t for_others = bytes_ - promised - wanted.max_bytes;
  const std::uint64_t to_go = other_bytes - std::min(other_bytes, for_others);
  const std::uint64_t free = free_bytes(store.folder());
  const std::uint64_t least = std::min(wanted.max_bytes, kLeastRoom);
  if (free < least && free + to_go < least)
    return fmt::format(
        "{} has {} to give: {} % of its file system are left to others (setting "
        "recordings.keep_free_percent)",
        store.folder(), format_bytes(static_cast<double>(free)), keep_free_percent_.load());
  store.shrink_to(for_others + kept_bytes, kept);
  return std::nullopt;
}

std::uint64_t RecordingBudget::free_bytes(const std::string& path) const {
  struct statvfs status {};
  std::string folder = path;
  while (::statvfs(folder.c_str(), &status) != 0) {
    const auto slash = folder.rfind('/');
    if (slash == std::string::npos || folder == "/") return ~0ULL;
    folder = slash == 0 ? "/" : folder.substr(0, slash);
  }
  const std::uint64_t all = std::uint64_t{status.f_blocks} * status.f_frsize;
  const std::uint64_t free = std::uint64_t{status.f_bavail} * status.f_frsize;
  const std::uint64_t kept = all / 100 * keep_free_percent_;
  return free > kept ? free - kept : 0;
}

}  // namespace ingero::app
