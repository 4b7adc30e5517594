// SPDX-License-Identifier: Apache-2.0
#include "record/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "base/timestamp.h"
#include "model/functions.h"
#include "record/report_data.h"
#include "record/report_text.h"
#include "record/report_verdict.h"

namespace ingero::record {
namespace {

using model::Page;
using model::PagePlot;
using model::PageSection;
using Row = std::vector<std::string>;

constexpr std::size_t kSlowest = 20;
constexpr std::size_t kMaxRows = 40;
constexpr std::size_t kPlotSeries = 8;
constexpr std::int64_t kOneDay = 86'400'000'000'000;

class Report {
 public:
  Report(const Recording& recording, ReportData data)
      : recording_(recording), data_(std::move(data)) {
    for (const auto& [key, rank] : data_.ranks) by_slowest_.push_back(&rank);
    std::sort(by_slowest_.begin(), by_slowest_.end(), [](const auto* a, const auto* b) {
      return a->slowest.call.span_ns > b->slowest.call.span_ns;
    });
  }
  Page make() const;

 private:
  PageSection head() const;
  PageSection losses() const;
  PageSection slowest() const;
  PagePlot plot() const;
  PageSection late_ranks() const;
  PageSection kernel_side() const;
  PageSection off_cpu() const;
  PageSection operations() const;
  PageSection copies() const;
  PageSection errors() const;

  /// Columns that say which call it is, and what they hold.
  std::vector<model::PageTable::Column> call_columns() const;
  Row call_cells(const ScannedCall& call) const;
  bool has_several_nodes() const { return recording_.nodes().size() > 1; }
  bool is_one_day() const { return data_.begin_ns / kOneDay == data_.end_ns / kOneDay; }

  const Recording& recording_;
  ReportData data_;
  std::vector<const ReportData::OfRank*> by_slowest_;
};

std::vector<model::PageTable::Column> Report::call_columns() const {
  std::vector<model::PageTable::Column> columns = {{"communicator"}, {"rank"}};
  if (has_several_nodes()) columns.push_back({"node", false, 1});
  columns.push_back({"operation"});
  columns.push_back({is_one_day() ? "at (UTC)" : "at"});
  columns.push_back({"took", true});
  return columns;
}

Row Report::call_cells(const ScannedCall& call) const {
  const CallContext& context = *call.context;
  Row cells = {comm_text(context.comm_id_hash), rank_text(context)};
  if (has_several_nodes()) cells.push_back(recording_.nodes()[context.node].name);
  cells.push_back(context.op);
  // The date stands in the section on top, and here the room is needed.
  constexpr std::size_t kTimeOfDay = 11, kTimeOfDayLength = 15;
  const std::string clock = clock_text(call.unix_ns);
  cells.push_back(is_one_day() ? clock.substr(kTimeOfDay, kTimeOfDayLength) : clock);
  cells.push_back(time_text(call.span_ns));
  return cells;
}

PageSection Report::head() const {
  PageSection section{"Recording", {}, {}, {}};
  CallSums nccl, cuda;
  for (const auto& [name, sums] : data_.operations) nccl.add(sums);
  for (const auto& [name, sums] : data_.directions) cuda.add(sums);
  section.lines.push_back(fmt::format("{} NCCL and {} CUDA calls in {}; {} of them failed.",
                                      count_text(nccl.calls), count_text(cuda.calls),
                                      time_text(data_.end_ns - data_.begin_ns),
                                      count_text(nccl.errors + cuda.errors)));
  section.table.columns = {
      {"node"}, {"kernel", false, 2}, {"from", false, 0, true}, {"to", false, 1, true},
      {"end"},  {"clock moved", true}};
  for (std::size_t i = 0; i < data_.nodes.size(); ++i) {
    const ReportData::Node& node = data_.nodes[i];
    const std::int64_t moved = node.clock_moved_ns;
    section.table.rows.push_back(
        {recording_.nodes()[i].name, node.kernel, date_text(node.from_ns), date_text(node.to_ns),
         node.end_reason.empty() ? "not told: still going on, or killed" : node.end_reason,
         (moved < 0 ? "-" : "") + time_text(std::abs(static_cast<double>(moved)))});
  }
  return section;
}

PageSection Report::losses() const {
  PageSection section{"What was not recorded", {}, {}, {}};
  section.table.columns = {{"reason"}, {"count", true}};
  for (const auto& [reason, count] : data_.losses)
    if (count != 0) section.table.rows.push_back({reason, count_text(count)});
  if (section.table.rows.empty())
    section.lines.emplace_back("Nothing was lost: every reason was counted, every count is 0.");
  if (data_.damaged != 0)
    section.lines.push_back(fmt::format("{} calls have lost their context: the file is damaged.",
                                        count_text(data_.damaged)));
  if (data_.left_out != 0)
    section.lines.push_back(
        fmt::format("{} calls are in the file and not on this page: it has more contexts than are "
                    "looked at. SQL finds them.",
                    count_text(data_.left_out)));
  for (const auto& [moments, name] : {std::pair{&data_.retransmits, "retransmits"},
                                      {&data_.waits, "waits for a CPU"},
                                      {&data_.off_cpu, "spans off the CPU"}})
    if (moments->is_cut())
      section.lines.push_back(fmt::format(
          "Of the {} the first {} are looked at here, the file has more. SQL finds them.", name,
          count_text(moments->count())));
  return section;
}

PageSection Report::slowest() const {
  PageSection section{"Slowest collective of each rank", {}, {}, {}};
  section.lines.emplace_back("Host time, in a group until that has ended; not the GPU's time.");
  section.table.columns = call_columns();
  for (const model::PageTable::Column& column : {model::PageTable::Column{"mean", true, 3},
                                                 {"calls", true, 2},
                                                 {"retransmits", true},
                                                 {"CPU wait", true}})
    section.table.columns.push_back(column);
  for (const ReportData::OfRank* rank : by_slowest_) {
    if (section.table.rows.size() == kSlowest) break;
    Row row = call_cells(rank->slowest.call);
    row.push_back(time_text(rank->sums.mean_ns()));
    row.push_back(count_text(rank->sums.calls));
    row.push_back(count_text(rank->slowest.retransmits));
    row.push_back(time_text(rank->slowest.waited_ns));
    section.table.rows.push_back(std::move(row));
  }
  if (by_slowest_.size() > kSlowest)
    section.lines.push_back(fmt::format("{} of {} ranks are shown.", kSlowest, by_slowest_.size()));
  if (by_slowest_.empty()) section.lines.emplace_back("No collective was recorded.");
  else section.plots.push_back(plot());
  return section;
}

PagePlot Report::plot() const {
  PagePlot plot{"Longest collective over time",
                "ms",
                static_cast<double>(data_.end_ns - data_.begin_ns) / 1e9,
                {},
                {}};
  for (const ReportData::OfRank* rank : by_slowest_) {
    if (plot.series.size() == kPlotSeries) break;
    const CallContext& context = *rank->slowest.call.context;
    plot.series.push_back(
        {fmt::format("{} rank {}", comm_text(context.comm_id_hash), rank_text(context)),
         rank->longest_by_time});
  }
  const std::pair<const char*, const Moments*> sides[] = {{"TCP retransmits", &data_.retransmits},
                                                          {"waits for a CPU", &data_.waits},
                                                          {"spans off the CPU", &data_.off_cpu}};
  for (const auto& [name, moments] : sides)
    if (moments->count() != 0)
      plot.counts.push_back(
          {name, moments->over_time(data_.begin_ns, data_.end_ns, ReportData::kPlotPoints)});
  return plot;
}

PageSection Report::late_ranks() const {
  PageSection section{"Late rank of each communicator", {}, {}, {}};
  section.lines.emplace_back(
      "The rank that called a collective last. Compared are collectives that all recorded ranks of "
      "a communicator have called.");
  if (has_several_nodes())
    section.lines.emplace_back("Between nodes this is as exact as their clocks agree.");
  section.table.columns = {{"communicator"},         {"late rank", true}, {"was last in", true},
                           {"of collectives", true}, {"mean", true},      {"longest", true}};
  std::vector<std::pair<const std::string*, const Late*>> by_lateness;
  for (const auto& [hash, late] : data_.late) by_lateness.emplace_back(&hash, &late);
  std::stable_sort(by_lateness.begin(), by_lateness.end(), [&](const auto& a, const auto& b) {
    return a.second->worst().second.sum_ns > b.second->worst().second.sum_ns;
  });
  if (by_lateness.size() > kMaxRows)
    section.lines.push_back(fmt::format("{} of {} communicators are shown, those that lost most.",
                                        kMaxRows, by_lateness.size()));
  for (const auto& [hash, of_hash] : by_lateness) {
    const Late& late = *of_hash;
    const auto& [rank, worst] = late.worst();
    if (section.table.rows.size() < kMaxRows)
      section.table.rows.push_back({comm_text(*hash), std::to_string(rank), count_text(worst.times),
                                    count_text(late.collectives),
                                    time_text(worst.sum_ns / static_cast<double>(worst.times)),
                                    time_text(late.longest_ns)});
  }
  if (data_.late.empty())
    section.lines.emplace_back(
        "No communicator has two recorded ranks here. Give the files of all nodes: ingero report "
        "a.db b.db");
  if (data_.mismatched != 0)
    section.lines.push_back(fmt::format(
        "{} collectives have one number and are not one operation on every rank: the ranks are not "
        "in step, or were not counted from the same call on.",
        count_text(data_.mismatched)));
  if (data_.unmatched != 0)
    section.lines.push_back(fmt::format("{} collectives were not seen from every recorded rank.",
                                        count_text(data_.unmatched)));
  return section;
}

PageSection Report::kernel_side() const {
  PageSection section{"Network and scheduler", {}, {}, {}};
  section.lines.push_back(
      data_.retransmits.count() == 0
          ? std::string("No TCP retransmit was recorded.")
          : fmt::format("{} TCP retransmits; {} collectives have one in their window.",
                        count_text(data_.retransmits.count()), count_text(data_.with_retransmits)));
  section.lines.push_back(data_.waits.count() == 0
                              ? std::string("No wait for a CPU above the threshold was recorded.")
                              : fmt::format("{} waits for a CPU; {} collectives waited.",
                                            count_text(data_.waits.count()),
                                            count_text(data_.with_waits)));
  if (data_.hindered.empty()) return section;
  section.lines.emplace_back("The slowest collectives with either of them:");
  section.table.columns = call_columns();
  for (const char* title : {"retransmits", "CPU wait"})
    section.table.columns.push_back({title, true});
  for (const SeenCall& seen : data_.hindered) {
    Row row = call_cells(seen.call);
    row.push_back(count_text(seen.retransmits));
    row.push_back(time_text(seen.waited_ns));
    section.table.rows.push_back(std::move(row));
  }
  return section;
}

/// Where the threads of the calls in `slowest` were.
PageSection Report::off_cpu() const {
  PageSection section{"Off the CPU in the slowest collectives", {}, {}, {}};
  section.lines.emplace_back(
      "Spans in which the calling thread had left the CPU because it waited for something, such as "
      "a "
      "lock, a reply or the disk. The rest of the call it worked, was ready to work, or slept for "
      "less than what is recorded.");
  section.table.columns = call_columns();
  for (const model::PageTable::Column& column : {model::PageTable::Column{"off CPU", true},
                                                 {"share", true, 2},
                                                 {"spans", true},
                                                 {"longest", true}})
    section.table.columns.push_back(column);
  for (const ReportData::OfRank* rank : by_slowest_) {
    const auto& [call, retransmits, waited_ns, off] = rank->slowest;
    if (off.count == 0 || section.table.rows.size() == kSlowest) continue;
    Row row = call_cells(call);
    row.push_back(time_text(off.duration_ns));
    row.push_back(
        fmt::format("{:.0f} %", 100.0 * static_cast<double>(off.duration_ns) /
                                    static_cast<double>(std::max<std::int64_t>(call.span_ns, 1))));
    row.push_back(count_text(off.count));
    row.push_back(time_text(off.longest_ns));
    section.table.rows.push_back(std::move(row));
  }
  if (section.table.rows.empty())
    section.lines.emplace_back("No thread was, in the slowest collective of its rank.");
  return section;
}

/// A row for each name with its calls; `nothing` says that there are none.
PageSection sums_section(const char* title, const char* name_column,
                         const std::map<std::string, CallSums>& sums_by_name, const char* nothing) {
  PageSection section{title, {}, {}, {}};
  section.table.columns = {{name_column},   {"calls", true}, {"errors", true},
                           {"bytes", true}, {"mean", true},  {"longest", true}};
  for (const auto& [name, sums] : sums_by_name)
    if (section.table.rows.size() < kMaxRows)
      section.table.rows.push_back({name, count_text(sums.calls), count_text(sums.errors),
                                    format_bytes(sums.bytes), time_text(sums.mean_ns()),
                                    time_text(sums.longest_ns)});
  if (sums_by_name.empty()) section.lines.emplace_back(nothing);
  return section;
}

PageSection Report::operations() const {
  return sums_section("NCCL calls by operation", "operation", data_.operations,
                      "No NCCL call was recorded.");
}

PageSection Report::copies() const {
  return sums_section("CUDA copies by direction", "direction", data_.directions,
                      "No CUDA copy was recorded.");
}

PageSection Report::errors() const {
  PageSection section{"Errors", {}, {}, {}};
  section.table.columns = {{"function"}, {"result"}, {"calls", true}};
  std::vector<std::pair<std::uint64_t, std::pair<std::string, std::int64_t>>> order;
  for (const auto& [key, count] : data_.errors) order.emplace_back(count, key);
  std::sort(order.rbegin(), order.rend());
  for (const auto& [count, key] : order) {
    const auto source = key.first.starts_with("nccl") ? API_SOURCE_NCCL : API_SOURCE_CUDA;
    if (section.table.rows.size() < kMaxRows)
      section.table.rows.push_back(
          {key.first, model::result_name(source, static_cast<std::int32_t>(key.second)),
           count_text(count)});
  }
  if (data_.errors.empty()) section.lines.emplace_back("No recorded call failed.");
  return section;
}

PageSection unknowns() {
  return {"What this page cannot know",
          {"How long the GPU worked: a collective's call returns when its work is queued. A long "
           "call means that the host waited.",
           "Calls before the recording began, calls that were lost (above), and what other hosts "
           "did unless their files are given too.",
           "Whether a retransmit slowed the collective in whose window it lies: it is a "
           "coincidence in time, of the same container where the kernel knows it.",
           "Traffic that does not use the kernel's TCP: InfiniBand, RoCE, NVLink."},
          {},
          {}};
}

Page Report::make() const {
  Page page{
      "ingero report",
      {make_verdict(recording_, data_), head(), losses(), slowest(), late_ranks(), kernel_side()}};
  if (data_.off_cpu.count() != 0) page.sections.push_back(off_cpu());
  for (PageSection section : {operations(), copies(), errors(), unknowns()})
    page.sections.push_back(std::move(section));
  return page;
}

}  // namespace

Result<Page> make_report(const Recording& recording, const Watch& watch) {
  auto data = read_report_data(recording, watch);
  if (!data) return fail(data.error());
  return Report(recording, std::move(*data)).make();
}

}  // namespace ingero::record
