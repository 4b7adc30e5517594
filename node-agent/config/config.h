// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/listen_address.h"
#include "base/log.h"
#include "base/result.h"

namespace ingero::config {

/// What happens to a cgroup that no policy names.
enum class DefaultAction { trace, ignore };
/// How probes are attached; automatic takes the best method that works on this kernel.
enum class AttachMethod { automatic, session, multi, perf, entry_only };
/// How the file to probe is opened.
enum class OpenMethod { automatic, map_files, path };
/// Which cgroup hierarchy names containers; automatic decides by what is mounted.
enum class CgroupHierarchyChoice { automatic, v2, memory, pids };

struct ProbesConfig {
  bool nccl = true;
  bool cuda = true;
  bool network = true;    ///< TCP retransmissions
  bool scheduler = true;  ///< waits for a processor
  bool operator==(const ProbesConfig&) const = default;
};

/// Recordings of pods that policies ask for.
struct RecordingsConfig {
  std::string directory = "/var/lib/ingero/recordings";
  std::uint64_t budget = std::uint64_t{4} << 30;  ///< bytes on this node; 0: nothing is recorded
  std::uint32_t keep_free_percent = 15;           ///< of the file system
  bool operator==(const RecordingsConfig&) const = default;
};

/// The agent's own settings. The defaults are here and nowhere else; names, ranges and descriptions
/// are in the table of settings (config/settings.cc).
struct Config {
  LogLevel log_level = LogLevel::info;
  LogFormat log_format = LogFormat::text;
  ProbesConfig probes;
  ListenAddress listen_address{"", 9090};
  std::chrono::nanoseconds scan_interval = std::chrono::seconds(10);
  DefaultAction default_action = DefaultAction::trace;
  std::chrono::nanoseconds slow_call_threshold{0};  ///< 0: no call counts as slow
  std::uint32_t max_series = 10000;
  std::vector<std::string> pod_labels{"*"};  ///< names with * and ?, that a policy may ask for
  /// How long the series of a pod stay after it is gone, or is no longer covered.
  std::chrono::nanoseconds series_retention = std::chrono::seconds(60);
  /// Ends of duration buckets to export, each 1 us times a power of 2; empty: all.
  std::vector<std::chrono::nanoseconds> duration_buckets;
  RecordingsConfig recordings;
  std::uint32_t map_entries = 16384;
  AttachMethod attach_method = AttachMethod::automatic;
  OpenMethod open_method = OpenMethod::automatic;
  CgroupHierarchyChoice cgroup_hierarchy = CgroupHierarchyChoice::automatic;
  std::chrono::nanoseconds detach_grace = std::chrono::seconds(10);
  std::string node_name;  ///< empty: the Kubernetes node's; outside of a cluster none
  bool operator==(const Config&) const = default;
};

/// Reads a configuration. Strict: an unknown or repeated key, a wrong type or a value out of range
/// is an error that names `name`:line and what to write instead; nothing is applied in part. Text
/// without settings gives the defaults. Throws nothing.
Result<Config> parse_config(std::string_view yaml, std::string_view name);

/// The same for a file of at most 1 MiB.
Result<Config> load_config(const std::string& path);

/// Keys whose values differ, as "probes.nccl", in the order of the table. `restart_only`: only
/// those that a running agent cannot take over.
std::vector<std::string> changed_settings(const Config& before, const Config& after,
                                          bool restart_only = false);

/// Equal where the settings in force are: those that change live are of `live`, the others of `started`. 16 hex
/// digits; it does not depend on how a text spells them.
std::string settings_hash(const Config& live, const Config& started);

/// The configuration as YAML that parse_config() reads back to an equal one.
std::string to_yaml(const Config& config);

/// The reference of all settings for the documentation, as a Markdown table.
std::string config_reference_markdown();

}  // namespace ingero::config
