// SPDX-License-Identifier: Apache-2.0
#include "config/settings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <vector>

#include "base/byte_size.h"
#include "base/text.h"
#include "config/duration.h"

namespace ingero::config {
namespace {

using std::chrono::nanoseconds;
using namespace std::chrono_literals;

tl::unexpected<Error> bad_value(std::string cause, std::string hint) {
  return fail(Error{"", "", std::move(cause), std::move(hint), 0});
}

std::string quoted(std::string_view text) {
  return fmt::format("\"{}\"", escape_terminal(truncate(text, 64)));
}

// `member` is a generic lambda that names a member of Config, const or not.

struct Common {
  std::string_view key;
  std::string_view help;
  bool live;
};

template <typename Member>
Setting bool_setting(Common common, Member member) {
  return Setting{common.key,
                 "bool",
                 "",
                 common.help,
                 common.live,
                 [member](Config& config, std::string_view text) -> Status {
                   if (text != "true" && text != "false") {
                     return bad_value(quoted(text) + " is not true or false",
                                      "write true or false");
                   }
                   member(config) = text == "true";
                   return {};
                 },
                 [member](const Config& config) { return member(config) ? "true" : "false"; }};
}

template <typename Member>
Setting duration_setting(Common common, Member member, nanoseconds min, nanoseconds max) {
  const std::string range = fmt::format("{} to {}", format_duration(min), format_duration(max));
  return Setting{common.key,
                 "duration",
                 range,
                 common.help,
                 common.live,
                 [member, min, max, range](Config& config, std::string_view text) -> Status {
                   const auto value = parse_duration(text);
                   if (!value) {
                     return bad_value(quoted(text) + " is not a duration",
                                      "write a number with a unit, such as 500ms, 10s or 1m30s");
                   }
                   if (*value < min || *value > max) {
                     return bad_value(quoted(text) + " is out of range",
                                      "write a duration from " + range);
                   }
                   member(config) = *value;
                   return {};
                 },
                 [member](const Config& config) { return format_duration(member(config)); }};
}

template <typename Member>
Setting integer_setting(Common common, Member member, std::uint32_t min, std::uint32_t max) {
  const std::string range = fmt::format("{} to {}", min, max);
  return Setting{
      common.key,
      "integer",
      range,
      common.help,
      common.live,
      [member, min, max, range](Config& config, std::string_view text) -> Status {
        std::uint64_t value = 0;
        const char* const end = text.data() + text.size();
        const auto [stop, error] = std::from_chars(text.data(), end, value);
        const bool number = !text.empty() && stop == end;
        if (!number || error == std::errc::invalid_argument) {
          return bad_value(quoted(text) + " is not a whole number", "write a number from " + range);
        }
        if (error != std::errc() || value < min || value > max) {
          return bad_value(quoted(text) + " is out of range", "write a number from " + range);
        }
        member(config) = static_cast<std::uint32_t>(value);
        return {};
      },
      [member](const Config& config) { return std::to_string(member(config)); }};
}

/// Bytes, 0 or `min` to `max`.
template <typename Member>
Setting size_setting(Common common, Member member, std::uint64_t min, std::uint64_t max) {
  const std::string range =
      fmt::format("0, or {} to {}", format_byte_size(min), format_byte_size(max));
  return Setting{common.key,
                 "size",
                 range,
                 common.help,
                 common.live,
                 [member, min, max, range](Config& config, std::string_view text) -> Status {
                   const auto bytes =
                       text == "0" ? std::optional<std::uint64_t>(0) : parse_byte_size(text);
                   if (!bytes)
                     return bad_value(quoted(text) + " is not a size",
                                      "write a number with a unit, such as 512MiB or 4GiB");
                   if (*bytes != 0 && (*bytes < min || *bytes > max))
                     return bad_value(quoted(text) + " is out of range", "write " + range);
                   member(config) = *bytes;
                   return {};
                 },
                 [member](const Config& config) { return format_byte_size(member(config)); }};
}

bool is_plain_path(std::string_view text) {
  const bool odd =
      std::any_of(text.begin(), text.end(), [](unsigned char c) { return c < ' ' || c == 0x7f; });
  const std::string path = std::string(text) + "/";
  const bool winding = path.find("/./") != path.npos || path.find("/../") != path.npos;
  return !odd && !winding && text.size() <= 1024 && text.starts_with('/') &&
         path.find("//") == path.npos;
}

/// An absolute path without . and .. in it.
template <typename Member>
Setting path_setting(Common common, Member member) {
  return Setting{common.key,
                 "path",
                 "absolute",
                 common.help,
                 common.live,
                 [member](Config& config, std::string_view text) -> Status {
                   if (!is_plain_path(text))
                     return bad_value(quoted(text) + " is not an absolute path",
                                      "write a path such as /var/lib/ingero/recordings");
                   member(config) = std::string(text);
                   return {};
                 },
                 [member](const Config& config) { return member(config); }};
}

template <typename E>
struct Choice {
  std::string_view name;
  E value;
};

template <typename E, typename Member>
Setting choice_setting(Common common, Member member, std::vector<Choice<E>> choices) {
  std::string names;
  for (const Choice<E>& choice : choices) {
    names += fmt::format("{}{}", names.empty() ? "" : " | ", choice.name);
  }
  return Setting{common.key,
                 names,
                 "",
                 common.help,
                 common.live,
                 [member, choices, names](Config& config, std::string_view text) -> Status {
                   for (const Choice<E>& choice : choices) {
                     if (choice.name != text) continue;
                     member(config) = choice.value;
                     return {};
                   }
                   return bad_value(quoted(text) + " is not one of the choices",
                                    "write one of " + names);
                 },
                 [member, choices](const Config& config) {
                   for (const Choice<E>& choice : choices) {
                     if (choice.value == member(config)) return std::string(choice.name);
                   }
                   return std::string();
                 }};
}

template <typename Member>
Setting address_setting(Common common, Member member) {
  return Setting{common.key,
                 "address",
                 "host:port",
                 common.help,
                 common.live,
                 [member](Config& config, std::string_view text) -> Status {
                   auto address = parse_listen_address(text);
                   if (!address) {
                     return bad_value(quoted(text) + ": " + address.error().cause,
                                      address.error().hint);
                   }
                   member(config) = std::move(*address);
                   return {};
                 },
                 [member](const Config& config) { return to_string(member(config)); }};
}

/// A Kubernetes node name (a DNS name), or empty.
template <typename Member>
Setting name_setting(Common common, Member member) {
  return Setting{common.key,
                 "string",
                 "at most 253 of a-z A-Z 0-9 . _ -",
                 common.help,
                 common.live,
                 [member](Config& config, std::string_view text) -> Status {
                   const bool clean = std::all_of(text.begin(), text.end(), [](char c) {
                     return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                            (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
                   });
                   if (!clean || text.size() > 253) {
                     return bad_value(
                         quoted(text) + " is not a host name",
                         "write at most 253 letters, digits, dots, dashes or underscores");
                   }
                   member(config) = std::string(text);
                   return {};
                 },
                 [member](const Config& config) { return member(config); }};
}

/// The words of a list, which a comma or white space separates.
std::vector<std::string> split_list(std::string_view text) {
  std::vector<std::string> words;
  std::size_t at = 0;
  while ((at = text.find_first_not_of(", \t", at)) != text.npos) {
    const std::size_t end = std::min(text.find_first_of(", \t", at), text.size());
    words.emplace_back(text.substr(at, end - at));
    at = end;
  }
  return words;
}

template <typename Words>
std::string join_list(const Words& words) {
  return fmt::format("{}", fmt::join(words, ", "));
}

constexpr std::size_t kMaxListWords = 64;

/// Names of labels, in which * and ? stand for anything and for one character.
template <typename Member>
Setting names_setting(Common common, Member member) {
  return Setting{common.key,
                 "list",
                 "at most 64 names, * and ? as wildcards",
                 common.help,
                 common.live,
                 [member](Config& config, std::string_view text) -> Status {
                   auto words = split_list(text);
                   if (words.size() > kMaxListWords)
                     return bad_value("more than 64 names", "use wildcards, such as app*");
                   for (const std::string& word : words) {
                     const bool clean = std::all_of(word.begin(), word.end(), [](char c) {
                       return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                              (c >= '0' && c <= '9') ||
                              std::string_view("._-/*?").find(c) != std::string_view::npos;
                     });
                     if (!clean || word.size() > 317) {
                       return bad_value(quoted(word) + " is not the name of a label",
                                        "write names such as app or batch.kubernetes.io/job-name");
                     }
                   }
                   member(config) = std::move(words);
                   return {};
                 },
                 [member](const Config& config) { return join_list(member(config)); }};
}

constexpr int kDurationEnds = 28;

Result<nanoseconds> parse_bucket_end(const std::string& word) {
  const auto value = parse_duration(word);
  if (!value) {
    return bad_value(quoted(word) + " is not a duration", "write ends such as 16us, 1024us");
  }
  for (int i = 0; i < kDurationEnds; ++i) {
    if (*value == nanoseconds(1us) * (1 << i)) return *value;
  }
  nanoseconds nearest = 1us;
  for (int i = 1; i < kDurationEnds && nearest < *value; ++i) nearest *= 2;
  return bad_value(quoted(word) + " is no end of a bucket: they are 1us times a power of 2",
                   fmt::format("write {}", format_duration(nearest)));
}

template <typename Member>
Setting buckets_setting(Common common, Member member) {
  return Setting{common.key,
                 "list",
                 "1us times powers of 2, up to 134217728us",
                 common.help,
                 common.live,
                 [member](Config& config, std::string_view text) -> Status {
                   std::vector<nanoseconds> ends;
                   for (const std::string& word : split_list(text)) {
                     const auto end = parse_bucket_end(word);
                     if (!end) return fail(end.error());
                     ends.push_back(*end);
                   }
                   std::sort(ends.begin(), ends.end());
                   ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
                   member(config) = std::move(ends);
                   return {};
                 },
                 [member](const Config& config) {
                   std::vector<std::string> words;
                   for (const nanoseconds end : member(config))
                     words.push_back(format_duration(end));
                   return join_list(words);
                 }};
}

std::vector<Setting> make_settings() {
  std::vector<Setting> table;
  table.push_back(
      choice_setting<LogLevel>({"log_level", "The least severe messages that are logged.", true},
                               [](auto& c) -> auto& { return c.log_level; },
                               {{"trace", LogLevel::trace},
                                {"debug", LogLevel::debug},
                                {"info", LogLevel::info},
                                {"warn", LogLevel::warn},
                                {"error", LogLevel::error}}));
  table.push_back(choice_setting<LogFormat>(
      {"log_format", "One line of text or one JSON object per message.", true},
      [](auto& c) -> auto& { return c.log_format; },
      {{"text", LogFormat::text}, {"json", LogFormat::json}}));
  table.push_back(bool_setting(
      {"probes.nccl", "Trace NCCL calls.", true}, [](auto& c) -> auto& { return c.probes.nccl; }));
  table.push_back(bool_setting(
      {"probes.cuda", "Trace CUDA runtime and driver calls.", true},
      [](auto& c) -> auto& { return c.probes.cuda; }));
  table.push_back(bool_setting(
      {"probes.network", "Count TCP segments that containers with traced processes sent again.",
       true},
      [](auto& c) -> auto& { return c.probes.network; }));
  table.push_back(bool_setting(
      {"probes.scheduler",
       "Time how long threads of traced processes wait for a processor; costs a little at every "
       "switch of tasks on the host.",
       true},
      [](auto& c) -> auto& { return c.probes.scheduler; }));
  table.push_back(address_setting(
      {"listen_address", "Where /metrics and the health pages are served; no host: all interfaces.",
       true},
      [](auto& c) -> auto& { return c.listen_address; }));
  table.push_back(duration_setting(
      {"scan_interval", "Time between full scans of the host's processes; events come in between.",
       true},
      [](auto& c) -> auto& { return c.scan_interval; }, 100ms, 1h));
  table.push_back(choice_setting<DefaultAction>(
      {"default_action", "What happens to a container that no policy names.", true},
      [](auto& c) -> auto& { return c.default_action; },
      {{"trace", DefaultAction::trace}, {"ignore", DefaultAction::ignore}}));
  table.push_back(duration_setting(
      {"slow_call_threshold",
       "A call that takes longer is counted as an anomaly, where no policy says otherwise; 0s: "
       "none is.",
       true},
      [](auto& c) -> auto& { return c.slow_call_threshold; }, 0ns, 1h));
  table.push_back(integer_setting(
      {"max_series", "Most series that are exported; what exceeds them is folded into `other`.",
       true},
      [](auto& c) -> auto& { return c.max_series; }, 100, 1'000'000));
  table.push_back(names_setting(
      {"pod_labels", "Labels and annotations of pods that policies may put on series.", true},
      [](auto& c) -> auto& { return c.pod_labels; }));
  table.push_back(duration_setting(
      {"series_retention",
       "How long the series of a pod stay after it is gone or no policy covers it.", true},
      [](auto& c) -> auto& { return c.series_retention; }, 1s, 24h));
  table.push_back(buckets_setting(
      {"duration_buckets", "Ends of the duration buckets that are exported; empty: all 28.", true},
      [](auto& c) -> auto& { return c.duration_buckets; }));
  table.push_back(path_setting(
      {"recordings.directory",
       "Where recordings of pods are written that policies ask for; a change waits for those that "
       "go on.",
       true},
      [](auto& c) -> auto& { return c.recordings.directory; }));
  table.push_back(size_setting(
      {"recordings.budget",
       "Most bytes that recordings of pods take on this node; the oldest make room for new ones. "
       "0: "
       "no pod is recorded.",
       true},
      [](auto& c) -> auto& { return c.recordings.budget; }, 10ULL << 20, 1ULL << 44));
  table.push_back(integer_setting(
      {"recordings.keep_free_percent",
       "Room of the file system that recordings of pods leave to others; kubelet evicts pods at "
       "10.",
       true},
      [](auto& c) -> auto& { return c.recordings.keep_free_percent; }, 0, 99));
  table.push_back(integer_setting(
      {"map_entries", "Entries of each BPF counting map; one per process and traced function.",
       false},
      [](auto& c) -> auto& { return c.map_entries; }, 64, 1U << 20));
  table.push_back(choice_setting<AttachMethod>(
      {"attach_method", "How probes are attached; auto takes the best that works here.", false},
      [](auto& c) -> auto& { return c.attach_method; },
      {{"auto", AttachMethod::automatic},
       {"session", AttachMethod::session},
       {"multi", AttachMethod::multi},
       {"perf", AttachMethod::perf},
       {"entry_only", AttachMethod::entry_only}}));
  table.push_back(
      choice_setting<OpenMethod>({"open_method", "How a library is opened for its probes.", false},
                                 [](auto& c) -> auto& { return c.open_method; },
                                 {{"auto", OpenMethod::automatic},
                                  {"map_files", OpenMethod::map_files},
                                  {"path", OpenMethod::path}}));
  table.push_back(choice_setting<CgroupHierarchyChoice>(
      {"cgroup_hierarchy", "Which cgroup hierarchy names containers.", false},
      [](auto& c) -> auto& { return c.cgroup_hierarchy; },
      {{"auto", CgroupHierarchyChoice::automatic},
       {"v2", CgroupHierarchyChoice::v2},
       {"memory", CgroupHierarchyChoice::memory},
       {"pids", CgroupHierarchyChoice::pids}}));
  table.push_back(duration_setting(
      {"detach_grace", "How long a library's probes stay after its last process is gone.", true},
      [](auto& c) -> auto& { return c.detach_grace; }, 0ns, 1h));
  table.push_back(name_setting(
      {"node_name",
       "The `node` label of every series; empty: the Kubernetes node's name, none outside of a "
       "cluster.",
       false},
      [](auto& c) -> auto& { return c.node_name; }));
  return table;
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
