// SPDX-License-Identifier: Apache-2.0
#include "record/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "base/text.h"
#include "base/timestamp.h"
#include "model/functions.h"
#include "record/call_scan.h"
#include "record/collective_matcher.h"

namespace ingero::record {
namespace {

using model::Page;
using model::PagePlot;
using model::PageSection;

constexpr std::size_t kSlowest = 20;
constexpr std::size_t kMaxRows = 40;
constexpr std::size_t kPlotPoints = 120;
constexpr std::size_t kPlotSeries = 8;
constexpr std::size_t kMaxMoments = 4 << 20;
constexpr std::uint64_t kCallsBetweenWatches = 1 << 16;

std::string count_text(std::uint64_t count) { return format_count(count); }
std::string time_text(double ns) {
  return format_duration_ns(static_cast<std::uint64_t>(std::clamp(ns, 0.0, 1e18)));
}
std::string clock_text(std::int64_t unix_ns) {
  return format_micro_timestamp(static_cast<std::uint64_t>(std::max<std::int64_t>(unix_ns, 0)));
}
std::string rank_text(const CallContext& context) {
  if (!context.rank) return "?";
  return context.nranks ? fmt::format("{}/{}", *context.rank, *context.nranks)
                        : std::to_string(*context.rank);
}
std::string comm_text(const std::string& hash) { return hash.empty() ? "?" : hash.substr(0, 8); }

struct Sums {
  std::uint64_t calls = 0, errors = 0;
  double bytes = 0, duration_ns = 0, longest_ns = 0;
  void add(const ScannedCall& call, bool failed) {
    ++calls;
    errors += failed ? 1 : 0;
    if (call.bytes && !failed) bytes += static_cast<double>(*call.bytes);
    duration_ns += static_cast<double>(call.duration_ns);
    longest_ns = std::max(longest_ns, static_cast<double>(call.duration_ns));
  }
  void add(const Sums& other) {
    calls += other.calls;
    errors += other.errors;
    bytes += other.bytes;
    duration_ns += other.duration_ns;
    longest_ns = std::max(longest_ns, other.longest_ns);
  }
  std::vector<std::string> cells() const {
    return {count_text(calls), count_text(errors), format_bytes(bytes),
            time_text(duration_ns / static_cast<double>(std::max<std::uint64_t>(calls, 1))),
            time_text(longest_ns)};
  }
};

/// Moments of the kernel's side, by time, of one file.
class Moments {
 public:
  struct Moment {
    std::int64_t unix_ns, duration_ns, owner;  ///< owner -1: not known
  };

  static Result<Moments> read(const Recording& recording, const char* select) {
    Moments moments;
    for (const Recording::Node& node : recording.nodes()) {
      std::vector<Moment>& list = moments.of_node_.emplace_back();
      auto rows =
          Statement::create(recording.database(), fmt::format(fmt::runtime(select), node.schema));
      if (!rows) return fail(rows.error());
      int code = SQLITE_DONE;
      while ((code = rows->step()) == SQLITE_ROW && list.size() < kMaxMoments)
        list.push_back({bounded_time(rows->integer(0)), bounded_time(rows->integer(1)),
                        rows->is_null(2) ? -1 : rows->integer(2)});
      if (code != SQLITE_DONE && code != SQLITE_ROW)
        return fail(database_error(recording.database(), "read events", node.path));
      moments.count_ += list.size();
    }
    return moments;
  }

  std::uint64_t count() const { return count_; }

  struct Found {
    std::uint64_t count = 0;
    std::int64_t duration_ns = 0;
  };
  /// Those that begin while the call runs and belong to `owner`, or to nobody that is known.
  Found within(const ScannedCall& call, std::int64_t owner) const {
    const std::vector<Moment>& list = of_node_[call.context->node];
    Found found;
    auto at = std::lower_bound(
        list.begin(), list.end(), call.unix_ns,
        [](const Moment& moment, std::int64_t time) { return moment.unix_ns < time; });
    for (; at != list.end() && at->unix_ns <= call.end_ns(); ++at) {
      if (at->owner != owner && at->owner != -1) continue;
      ++found.count;
      found.duration_ns = bounded_time(found.duration_ns + at->duration_ns);
    }
    return found;
  }

 private:
  std::vector<std::vector<Moment>> of_node_;
  std::uint64_t count_ = 0;
};

struct SlowCall {
  ScannedCall call;
  std::uint64_t retransmits = 0;
  std::int64_t waited_ns = 0;
};

/// How often a rank came last, and by how much.
struct Late {
  std::map<std::int32_t, std::pair<std::uint64_t, double>> last;  ///< rank: times, sum of ns
  std::uint64_t collectives = 0;
  double longest_ns = 0;
};

class Report {
 public:
  Report(const Recording& recording, const Watch& watch) : recording_(recording), watch_(watch) {}
  Result<Page> make();

 private:
  Status read_head();
  Status read_nccl();
  Status read_cuda();
  void take_collective(const ScannedCall& call);
  void take_match(const MatchedCollective& match);
  bool is_failed(const ScannedCall& call, api_source source);
  Status keep_on(std::uint64_t calls) {
    if (calls % kCallsBetweenWatches != 0 || !watch_ || !watch_(calls)) return {};
    return fail({"make report", "", "interrupted", ""});
  }
  PageSection losses() const;
  PageSection operations() const;
  PageSection slowest();
  PageSection late_ranks() const;
  PageSection kernel_side() const;
  PageSection copies() const;
  PageSection errors() const;
  PageSection unknowns() const;

  const Recording& recording_;
  const Watch& watch_;
  PageSection head_;
  std::map<std::string, std::uint64_t> losses_;
  std::int64_t begin_ns_ = 0, end_ns_ = 0;
  std::map<std::string, Sums> ops_;
  std::map<std::string, Sums> directions_;
  std::map<std::pair<std::string, std::int64_t>, std::uint64_t> errors_;  ///< function, result
  using RankKey = std::tuple<std::string, std::int32_t, std::size_t>;     ///< comm, rank, node
  struct OfRank {
    Sums sums;
    SlowCall slowest;
    std::vector<double> longest_by_time;
  };
  std::map<RankKey, OfRank> ranks_;
  std::vector<OfRank*> rank_of_;  ///< by index of the context
  std::optional<CallScan> nccl_;
  std::map<std::string, Late> late_;
  std::uint64_t unmatched_ = 0, damaged_ = 0, with_retransmits_ = 0, with_waits_ = 0;
  std::optional<Moments> retransmits_, waits_;
};

Status Report::read_head() {
  head_.title = "Recording";
  head_.table.columns = {{"node"}, {"kernel"}, {"from"}, {"to"}, {"end"}, {"clock moved", true}};
  for (const Recording::Node& node : recording_.nodes()) {
    auto row = Statement::create(
        recording_.database(),
        fmt::format("SELECT kernel, started_ns, COALESCE(ended_ns, updated_ns), end_reason, "
                    "clock_drift_ns FROM {}.recording",
                    node.schema));
    if (!row) return fail(row.error());
    if (row->step() != SQLITE_ROW)
      return fail({"make report", node.path, "the recording does not say what it is", ""});
    const std::int64_t from = bounded_time(row->integer(1));
    const std::int64_t to = std::max(bounded_time(row->integer(2)), from);
    begin_ns_ = begin_ns_ == 0 ? from : std::min(begin_ns_, from);
    end_ns_ = std::max(end_ns_, to);
    const std::int64_t drift = row->integer(4);
    head_.table.rows.push_back(
        {node.name, bounded_text(*row, 0), clock_text(from), clock_text(to),
         row->is_null(3) ? "not told: still going on, or killed" : bounded_text(*row, 3),
         (drift < 0 ? "-" : "") + time_text(std::abs(static_cast<double>(drift)))});
    auto losses = Statement::create(
        recording_.database(),
        fmt::format("SELECT reason, count FROM {}.losses LIMIT 1000", node.schema));
    if (!losses) return fail(losses.error());
    while (losses->step() == SQLITE_ROW)
      losses_[bounded_text(*losses, 0)] +=
          static_cast<std::uint64_t>(bounded_time(losses->integer(1)));
  }
  return {};
}

bool Report::is_failed(const ScannedCall& call, api_source source) {
  return model::is_failure(source, static_cast<std::int32_t>(call.result));
}

Status Report::read_nccl() {
  auto scan = CallScan::create(recording_, CallTable::kNccl);
  if (!scan) return fail(scan.error());
  std::vector<Sums> sums(scan->context_count());
  rank_of_.resize(scan->context_count());
  CollectiveMatcher matcher(*scan, [this](const MatchedCollective& match) { take_match(match); });
  ScannedCall call;
  std::uint64_t calls = 0;
  while (true) {
    auto more = scan->next(call);
    if (!more) return fail(more.error());
    if (!*more) break;
    if (auto status = keep_on(++calls); !status) return status;
    const bool failed = is_failed(call, API_SOURCE_NCCL);
    sums[call.context->index].add(call, failed);
    if (failed) ++errors_[{call.context->function, call.result}];
    if (call.bytes) take_collective(call);
    matcher.add(call);
  }
  for (const auto& contexts : scan->contexts())
    for (const auto& [id, context] : contexts) ops_[context.op].add(sums[context.index]);
  unmatched_ = matcher.incomplete();
  damaged_ += scan->damaged();
  nccl_.emplace(std::move(*scan));  // the slowest calls refer to its contexts
  return {};
}

void Report::take_collective(const ScannedCall& call) {
  const CallContext& context = *call.context;
  OfRank*& known = rank_of_[context.index];
  if (known == nullptr)
    known = &ranks_[{context.comm_id_hash, context.rank.value_or(-1), context.node}];
  OfRank& rank = *known;
  rank.sums.add(call, is_failed(call, API_SOURCE_NCCL));
  SlowCall found{call, 0, 0};
  if (retransmits_->count() != 0)
    found.retransmits = retransmits_->within(call, context.cgroup_id).count;
  if (waits_->count() != 0) found.waited_ns = waits_->within(call, context.tid).duration_ns;
  with_retransmits_ += found.retransmits != 0 ? 1 : 0;
  with_waits_ += found.waited_ns != 0 ? 1 : 0;
  if (rank.slowest.call.context == nullptr || call.duration_ns > rank.slowest.call.duration_ns)
    rank.slowest = found;
  if (end_ns_ <= begin_ns_) return;
  if (rank.longest_by_time.empty()) rank.longest_by_time.assign(kPlotPoints, -1);
  const double share =
      static_cast<double>(std::clamp(call.unix_ns, begin_ns_, end_ns_) - begin_ns_) /
      static_cast<double>(end_ns_ - begin_ns_);
  double& point = rank.longest_by_time[std::min(
      static_cast<std::size_t>(share * static_cast<double>(kPlotPoints)), kPlotPoints - 1)];
  point = std::max(point, static_cast<double>(call.duration_ns) / 1e6);
}

void Report::take_match(const MatchedCollective& match) {
  Late& late = late_[match.comm_id_hash];
  const auto [first, last] = std::minmax_element(
      match.calls.begin(), match.calls.end(),
      [](const ScannedCall& a, const ScannedCall& b) { return a.unix_ns < b.unix_ns; });
  const auto behind = static_cast<double>(last->unix_ns - first->unix_ns);
  auto& [times, sum] = late.last[last->context->rank.value_or(-1)];
  ++times;
  sum += behind;
  ++late.collectives;
  late.longest_ns = std::max(late.longest_ns, behind);
}

Status Report::read_cuda() {
  auto scan = CallScan::create(recording_, CallTable::kCuda);
  if (!scan) return fail(scan.error());
  ScannedCall call;
  std::uint64_t calls = 0;
  while (true) {
    auto more = scan->next(call);
    if (!more) return fail(more.error());
    if (!*more) break;
    if (auto status = keep_on(++calls); !status) return status;
    const bool failed = is_failed(call, API_SOURCE_CUDA);
    const std::string& direction = call.context->direction;
    directions_[direction.empty() ? "(no copy) " + call.context->op : direction].add(call, failed);
    if (failed) ++errors_[{call.context->function, call.result}];
  }
  damaged_ += scan->damaged();
  return {};
}

PageSection Report::losses() const {
  PageSection section{"What was not recorded", {}, {}, {}};
  section.table.columns = {{"reason"}, {"count", true}};
  for (const auto& [reason, count] : losses_)
    if (count != 0) section.table.rows.push_back({reason, count_text(count)});
  if (section.table.rows.empty())
    section.lines.emplace_back("Nothing was lost: every reason was counted, every count is 0.");
  if (damaged_ != 0)
    section.lines.push_back(fmt::format("{} calls have lost their context: the file is damaged.",
                                        count_text(damaged_)));
  return section;
}

namespace {

/// A row for each name with its calls; `nothing` says that there are none.
template <typename SumsByName>
PageSection sums_section(const char* title, const char* name_column, const SumsByName& sums_by_name,
                         const char* nothing) {
  PageSection section{title, {}, {}, {}};
  section.table.columns = {{name_column},   {"calls", true}, {"errors", true},
                           {"bytes", true}, {"mean", true},  {"longest", true}};
  for (const auto& [name, sums] : sums_by_name) {
    std::vector<std::string> row{name};
    for (std::string& cell : sums.cells()) row.push_back(std::move(cell));
    if (section.table.rows.size() < kMaxRows) section.table.rows.push_back(std::move(row));
  }
  if (sums_by_name.empty()) section.lines.emplace_back(nothing);
  return section;
}

}  // namespace

PageSection Report::operations() const {
  return sums_section("NCCL calls by operation", "operation", ops_, "No NCCL call was recorded.");
}

PageSection Report::slowest() {
  PageSection section{"Slowest collective of each rank", {}, {}, {}};
  section.lines.emplace_back("Host time of the call, not the GPU's time of the transfer.");
  section.table.columns = {{"communicator"},        {"rank"},        {"node"},
                           {"operation"},           {"at"},          {"took", true},
                           {"mean", true},          {"calls", true}, {"retransmits in it", true},
                           {"waited for CPU", true}};
  std::vector<const OfRank*> order;
  for (const auto& [key, rank] : ranks_) order.push_back(&rank);
  std::sort(order.begin(), order.end(), [](const OfRank* a, const OfRank* b) {
    return a->slowest.call.duration_ns > b->slowest.call.duration_ns;
  });
  PagePlot plot{
      "Longest collective over time", "ms", static_cast<double>(end_ns_ - begin_ns_) / 1e9, {}};
  for (const OfRank* rank : order) {
    const SlowCall& slow = rank->slowest;
    const CallContext& context = *slow.call.context;
    if (section.table.rows.size() < kSlowest)
      section.table.rows.push_back(
          {comm_text(context.comm_id_hash), rank_text(context),
           recording_.nodes()[context.node].name, context.op, clock_text(slow.call.unix_ns),
           time_text(static_cast<double>(slow.call.duration_ns)),
           time_text(rank->sums.duration_ns / static_cast<double>(rank->sums.calls)),
           count_text(rank->sums.calls), count_text(slow.retransmits),
           time_text(static_cast<double>(slow.waited_ns))});
    if (plot.series.size() < kPlotSeries && !rank->longest_by_time.empty())
      plot.series.push_back(
          {fmt::format("{} rank {}", comm_text(context.comm_id_hash), rank_text(context)),
           rank->longest_by_time});
  }
  if (order.size() > kSlowest)
    section.lines.push_back(fmt::format("{} of {} ranks are shown.", kSlowest, order.size()));
  if (!plot.series.empty()) section.plots.push_back(std::move(plot));
  return section;
}

PageSection Report::late_ranks() const {
  PageSection section{"Late rank of each communicator", {}, {}, {}};
  section.lines.emplace_back(
      "The rank that called a collective last. Compared are collectives that all recorded ranks of "
      "a communicator have called.");
  if (recording_.nodes().size() > 1)
    section.lines.emplace_back("Between nodes this is as exact as their clocks agree.");
  section.table.columns = {{"communicator"},         {"late rank", true}, {"was last in", true},
                           {"of collectives", true}, {"mean", true},      {"longest", true}};
  for (const auto& [hash, late] : late_) {
    const auto worst = std::max_element(
        late.last.begin(), late.last.end(),
        [](const auto& a, const auto& b) { return a.second.second < b.second.second; });
    const auto& [times, sum] = worst->second;
    if (section.table.rows.size() < kMaxRows)
      section.table.rows.push_back({comm_text(hash), std::to_string(worst->first),
                                    count_text(times), count_text(late.collectives),
                                    time_text(sum / static_cast<double>(times)),
                                    time_text(late.longest_ns)});
  }
  if (late_.empty())
    section.lines.emplace_back(
        "No communicator has two recorded ranks here. Give the files of all nodes: ingero report "
        "a.db b.db");
  if (unmatched_ != 0)
    section.lines.push_back(fmt::format("{} collectives were not seen from every recorded rank.",
                                        count_text(unmatched_)));
  return section;
}

PageSection Report::kernel_side() const {
  PageSection section{"Network and scheduler", {}, {}, {}};
  section.lines.push_back(
      retransmits_->count() == 0
          ? std::string("No TCP retransmit was recorded.")
          : fmt::format("{} TCP retransmits; {} collectives have one in their window.",
                        count_text(retransmits_->count()), count_text(with_retransmits_)));
  section.lines.push_back(waits_->count() == 0
                              ? std::string("No wait for a CPU above the threshold was recorded.")
                              : fmt::format("{} waits for a CPU; {} collectives waited.",
                                            count_text(waits_->count()), count_text(with_waits_)));
  return section;
}

PageSection Report::copies() const {
  return sums_section("CUDA copies by direction", "direction", directions_,
                      "No CUDA copy was recorded.");
}

PageSection Report::errors() const {
  PageSection section{"Errors", {}, {}, {}};
  section.table.columns = {{"function"}, {"result"}, {"calls", true}};
  std::vector<std::pair<std::uint64_t, std::pair<std::string, std::int64_t>>> order;
  for (const auto& [key, count] : errors_) order.emplace_back(count, key);
  std::sort(order.rbegin(), order.rend());
  for (const auto& [count, key] : order) {
    const auto source = key.first.starts_with("nccl") ? API_SOURCE_NCCL : API_SOURCE_CUDA;
    if (section.table.rows.size() < kMaxRows)
      section.table.rows.push_back(
          {key.first, model::result_name(source, static_cast<std::int32_t>(key.second)),
           count_text(count)});
  }
  if (errors_.empty()) section.lines.emplace_back("No recorded call failed.");
  return section;
}

PageSection Report::unknowns() const {
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

Result<Page> Report::make() {
  if (auto status = read_head(); !status) return fail(status.error());
  auto retransmits =
      Moments::read(recording_,
                    "SELECT timestamp_ns, 0, cgroup_id FROM {}.tcp_events WHERE event = "
                    "'tcp_retransmit_skb' ORDER BY timestamp_ns");
  if (!retransmits) return fail(retransmits.error());
  retransmits_ = std::move(*retransmits);
  auto waits =
      Moments::read(recording_,
                    "SELECT timestamp_ns, duration_ns, tid FROM {}.sched_events WHERE event = "
                    "'run_queue_wait' ORDER BY timestamp_ns");
  if (!waits) return fail(waits.error());
  waits_ = std::move(*waits);
  if (auto status = read_nccl(); !status) return fail(status.error());
  if (auto status = read_cuda(); !status) return fail(status.error());
  Page page{"ingero report", {}};
  page.sections = {head_,        losses(), slowest(), late_ranks(), kernel_side(),
                   operations(), copies(), errors(),  unknowns()};
  return page;
}

}  // namespace

Result<Page> make_report(const Recording& recording, const Watch& watch) {
  return Report(recording, watch).make();
}

}  // namespace ingero::record
