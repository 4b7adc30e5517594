// SPDX-License-Identifier: Apache-2.0
#include "config/settings.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "config/setting_kinds.h"

namespace ingero::config {
namespace {

using namespace std::chrono_literals;

std::vector<Setting> make_settings() {
  return {
      make_setting(
          {"log_level", "The least severe messages that are logged.", true},
          one_of<LogLevel>({{"trace", LogLevel::trace},
                            {"debug", LogLevel::debug},
                            {"info", LogLevel::info},
                            {"warn", LogLevel::warn},
                            {"error", LogLevel::error}}),
          [](auto& c) -> auto& { return c.log_level; }),
      make_setting(
          {"log_format", "One line of text or one JSON object per message.", true},
          one_of<LogFormat>({{"text", LogFormat::text}, {"json", LogFormat::json}}),
          [](auto& c) -> auto& { return c.log_format; }),
      make_setting(
          {"probes.nccl", "Trace NCCL calls.", true}, bool_kind(),
          [](auto& c) -> auto& { return c.probes.nccl; }),
      make_setting(
          {"probes.cuda", "Trace CUDA runtime and driver calls.", true}, bool_kind(),
          [](auto& c) -> auto& { return c.probes.cuda; }),
      make_setting(
          {"probes.network", "Count TCP segments that containers with traced processes sent again.",
           true},
          bool_kind(), [](auto& c) -> auto& { return c.probes.network; }),
      make_setting(
          {"probes.scheduler",
           "Time how long threads of traced processes wait for a processor; costs a little at "
           "every switch of tasks on the host.",
           true},
          bool_kind(), [](auto& c) -> auto& { return c.probes.scheduler; }),
      make_setting(
          {"listen_address",
           "Where /metrics and the health pages are served; no host: all interfaces.", true},
          address_kind(), [](auto& c) -> auto& { return c.listen_address; }),
      make_setting(
          {"scan_interval",
           "Time between full scans of the host's processes; events come in between.", true},
          duration_kind(100ms, 1h), [](auto& c) -> auto& { return c.scan_interval; }),
      make_setting(
          {"default_action", "What happens to a container that no policy names.", true},
          one_of<DefaultAction>(
              {{"trace", DefaultAction::trace}, {"ignore", DefaultAction::ignore}}),
          [](auto& c) -> auto& { return c.default_action; }),
      make_setting(
          {"slow_call_threshold",
           "A call that takes longer is counted as an anomaly, where no policy says otherwise; 0s: "
           "none is.",
           true},
          duration_kind(0ns, 1h), [](auto& c) -> auto& { return c.slow_call_threshold; }),
      make_setting(
          {"max_series", "Most series that are exported; what exceeds them is folded into `other`.",
           true},
          integer_kind(100, 1'000'000), [](auto& c) -> auto& { return c.max_series; }),
      make_setting(
          {"pod_labels", "Labels and annotations of pods that policies may put on series.", true},
          names_kind(), [](auto& c) -> auto& { return c.pod_labels; }),
      make_setting(
          {"series_retention",
           "How long the series of a pod or container stay after it is gone or no policy covers "
           "it.",
           true},
          duration_kind(1s, 24h), [](auto& c) -> auto& { return c.series_retention; }),
      make_setting(
          {"duration_buckets", "Ends of the duration buckets that are exported; empty: all 28.",
           true},
          buckets_kind(), [](auto& c) -> auto& { return c.duration_buckets; }),
      make_setting(
          {"recordings.directory",
           "Where recordings of pods are written that policies ask for; a change waits for those "
           "that go on.",
           true},
          path_kind(), [](auto& c) -> auto& { return c.recordings.directory; }),
      make_setting(
          {"recordings.budget",
           "Most bytes that recordings of pods take on this node; the oldest make room for new "
           "ones. 0: no pod is recorded.",
           true},
          size_kind(10ULL << 20, 1ULL << 44), [](auto& c) -> auto& { return c.recordings.budget; }),
      make_setting(
          {"recordings.keep_free_percent",
           "Room of the file system that recordings of pods leave to others; kubelet evicts pods "
           "at 10.",
           true},
          integer_kind(0, 99), [](auto& c) -> auto& { return c.recordings.keep_free_percent; }),
      make_setting(
          {"map_entries", "Entries of each BPF counting map; one per process and traced function.",
           false},
          integer_kind(64, 1U << 20), [](auto& c) -> auto& { return c.map_entries; }),
      make_setting(
          {"attach_method", "How probes are attached; auto takes the best that works here.", false},
          one_of<AttachMethod>({{"auto", AttachMethod::automatic},
                                {"session", AttachMethod::session},
                                {"multi", AttachMethod::multi},
                                {"perf", AttachMethod::perf},
                                {"entry_only", AttachMethod::entry_only}}),
          [](auto& c) -> auto& { return c.attach_method; }),
      make_setting(
          {"open_method", "How a library is opened for its probes.", false},
          one_of<OpenMethod>({{"auto", OpenMethod::automatic},
                              {"map_files", OpenMethod::map_files},
                              {"path", OpenMethod::path}}),
          [](auto& c) -> auto& { return c.open_method; }),
      make_setting(
          {"cgroup_hierarchy", "Which cgroup hierarchy names containers.", false},
          one_of<CgroupHierarchyChoice>({{"auto", CgroupHierarchyChoice::automatic},
                                         {"v2", CgroupHierarchyChoice::v2},
                                         {"memory", CgroupHierarchyChoice::memory},
                                         {"pids", CgroupHierarchyChoice::pids}}),
          [](auto& c) -> auto& { return c.cgroup_hierarchy; }),
      make_setting(
          {"detach_grace", "How long a library's probes stay after its last process is gone.",
           true},
          duration_kind(0ns, 1h), [](auto& c) -> auto& { return c.detach_grace; }),
      make_setting(
          {"node_name",
           "The `node` label of every series; empty: the Kubernetes node's name, none outside of a "
           "cluster.",
           false},
          name_kind(), [](auto& c) -> auto& { return c.node_name; }),
  };
}

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

}  // namespace

std::span<const Setting> settings() {
  static const std::vector<Setting> table = make_settings();
  return table;
}

const Setting* find_setting(std::string_view key) {
  for (const Setting& setting : settings()) {
    if (setting.key == key) return &setting;
  }
  return nullptr;
}

std::string nearest_key(std::string_view key) {
  constexpr std::size_t kMaxKeyLength = 64;  // longer than any key with room for a few typos
  if (key.size() > kMaxKeyLength) return "";
  std::string_view best;
  std::size_t best_distance = 0;
  for (const Setting& setting : settings()) {
    // A leaf written without its group, such as "nccl", is near to "probes.nccl".
    const std::size_t dot = setting.key.rfind('.');
    const std::string_view leaf = setting.key.substr(dot + 1);
    const std::string_view group = dot == setting.key.npos ? leaf : setting.key.substr(0, dot);
    for (const auto& [form, target] : {std::pair{setting.key, setting.key},
                                       std::pair{leaf, setting.key}, std::pair{group, group}}) {
      if (target != setting.key && find_setting(target) != nullptr) continue;
      const std::size_t distance = edit_distance(key, form);
      const bool near =
          distance <= std::max<std::size_t>(2, form.size() / 2) && distance < form.size();
      if (near && (best.empty() || distance < best_distance)) {
        best = target;
        best_distance = distance;
      }
    }
  }
  return std::string(best);
}

}  // namespace ingero::config
