// SPDX-License-Identifier: Apache-2.0
#include "record/report_verdict.h"

#include "record/report_text.h"

namespace ingero::record {
namespace {

constexpr std::uint64_t kFewest = 10;  // collectives from which a habit can be told
constexpr double kShareOfTime = 0.01;  // less is nobody's trouble
constexpr std::size_t kNamed = 3;

double seconds_of(const ReportData& data) {
  return static_cast<double>(std::max<std::int64_t>(data.end_ns - data.begin_ns, 1));
}

/// Whether a rank is last so much more often than its share that it is no chance: with two ranks in three of
/// four collectives, with many in half of them.
bool stands_out(const Late& late, double recorded_ns) {
  if (late.collectives < kFewest || late.ranks < 2) return false;
  const Late::Rank& worst = late.worst().second;
  const double fair = 1.0 / static_cast<double>(late.ranks);
  const double share = static_cast<double>(worst.times) / static_cast<double>(late.collectives);
  return share >= fair + (1 - fair) / 2 && worst.sum_ns >= kShareOfTime * recorded_ns;
}

std::string place_of(const Recording& recording, const ReportData& data,
                     const CallContext* context) {
  if (context == nullptr) return "";
  std::string place = fmt::format(", pid {}", context->pid);
  const auto container = data.containers.find({context->node, context->cgroup_id});
  if (container != data.containers.end() && !container->second.empty())
    place += " in " + container->second;
  if (recording.nodes().size() > 1) place += " on " + recording.nodes()[context->node].name;
  return place;
}

void tell_late_ranks(const Recording& recording, const ReportData& data,
                     std::vector<std::string>& lines) {
  const double recorded_ns = seconds_of(data);
  std::vector<std::pair<const std::string*, const Late*>> found;
  for (const auto& [hash, late] : data.late)
    if (stands_out(late, recorded_ns)) found.emplace_back(&hash, &late);
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) {
    return a.second->worst().second.sum_ns > b.second->worst().second.sum_ns;
  });
  for (std::size_t i = 0; i < std::min(found.size(), kNamed); ++i) {
    const Late& late = *found[i].second;
    const auto& [rank, worst] = late.worst();
    lines.push_back(fmt::format(
        "Rank {} of communicator {} is late{}: last in {} of {} collectives, by {} in the mean, "
        "together {:.0f} % of the recorded time.",
        rank, comm_text(*found[i].first), place_of(recording, data, worst.context),
        count_text(worst.times), count_text(late.collectives),
        time_text(worst.sum_ns / static_cast<double>(worst.times)),
        100 * worst.sum_ns / recorded_ns));
  }
  if (found.size() > kNamed)
    lines.push_back(
        fmt::format("So it is in {} communicators more, see below.", found.size() - kNamed));
  if (found.empty() && !data.late.empty())
    lines.emplace_back(
        "No rank stands out: none is last so much more often than the others that they lose time.");
}

void tell_slowest(const Recording& recording, const ReportData& data,
                  std::vector<std::string>& lines) {
  const ReportData::OfRank* slowest = nullptr;
  for (const auto& [key, rank] : data.ranks)
    if (slowest == nullptr || rank.slowest.call.span_ns > slowest->slowest.call.span_ns)
      slowest = &rank;
  if (slowest == nullptr) {
    lines.emplace_back("No collective was recorded.");
    return;
  }
  const SeenCall& seen = slowest->slowest;
  std::string line =
      fmt::format("The slowest collective took {}: {} of rank {}{}", time_text(seen.call.span_ns),
                  seen.call.context->op, rank_text(*seen.call.context),
                  place_of(recording, data, seen.call.context));
  if (seen.retransmits != 0)
    line += fmt::format("; {} TCP retransmits in it", count_text(seen.retransmits));
  if (seen.waited_ns != 0)
    line += fmt::format("; {} of it without a CPU", time_text(seen.waited_ns));
  lines.push_back(line + ".");
}

}  // namespace

model::PageSection make_verdict(const Recording& recording, const ReportData& data) {
  model::PageSection section{"Verdict", {}, {}, {}};
  tell_late_ranks(recording, data, section.lines);
  tell_slowest(recording, data, section.lines);
  std::uint64_t failed = 0, lost = data.damaged;
  for (const auto& [key, count] : data.errors) failed += count;
  for (const auto& [reason, count] : data.losses) lost += count;
  section.lines.push_back(failed == 0
                              ? "No call failed."
                              : fmt::format("{} calls failed, see Errors.", count_text(failed)));
  if (lost != 0)
    section.lines.push_back(fmt::format(
        "{} calls or events are missing, see What was not recorded.", count_text(lost)));
  return section;
}

}  // namespace ingero::record
