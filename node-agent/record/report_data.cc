// SPDX-License-Identifier: Apache-2.0
#include "record/report_data.h"

#include <fmt/format.h>

#include <algorithm>

#include "model/functions.h"
#include "record/collective_matcher.h"

namespace ingero::record {
namespace {

constexpr std::size_t kMaxMoments = 4 << 20;
constexpr std::uint64_t kCallsBetweenWatches = 1 << 16;
constexpr std::size_t kIdLength = 64,
                      kShownOfId = 12;  // of a container, as container tools show it

constexpr const char* kRetransmits =
    "SELECT timestamp_ns, 0, cgroup_id FROM {}.tcp_events WHERE event = 'tcp_retransmit_skb' "
    "ORDER BY timestamp_ns";
constexpr const char* kWaits =
    "SELECT timestamp_ns, duration_ns, tid FROM {}.sched_events WHERE event = 'run_queue_wait' "
    "ORDER BY timestamp_ns";
constexpr const char* kOffCpu =
    "SELECT timestamp_ns, duration_ns, tid FROM {}.sched_events WHERE event = 'off_cpu' "
    "ORDER BY timestamp_ns";
// The drift in the head is where the clock is in the end; it may have been farther away, and come back.
constexpr const char* kHead =
    "SELECT kernel, started_ns, COALESCE(ended_ns, updated_ns), end_reason, "
    "(SELECT moved FROM (SELECT clock_drift_ns AS moved UNION ALL SELECT s.offset_ns - "
    "r.clock_offset_ns FROM {0}.clock_samples s) ORDER BY ABS(moved) DESC LIMIT 1) "
    "FROM {0}.recording r";

std::size_t point_of(std::int64_t unix_ns, std::int64_t begin_ns, std::int64_t end_ns,
                     std::size_t points) {
  if (end_ns <= begin_ns) return 0;
  const double share = static_cast<double>(std::clamp(unix_ns, begin_ns, end_ns) - begin_ns) /
                       static_cast<double>(end_ns - begin_ns);
  return std::min(static_cast<std::size_t>(share * static_cast<double>(points)), points - 1);
}

bool is_failed(const ScannedCall& call, api_source source) {
  return model::is_failure(source, static_cast<std::int32_t>(call.result));
}

class Reader {
 public:
  Reader(const Recording& recording, const Watch& watch)
      : recording_(recording), watch_(recording, watch) {}
  Result<ReportData> read();

 private:
  Status read_head();
  Status read_losses(const Recording::Node& node);
  Status read_containers(const Recording::Node& node, std::size_t index);
  Status read_kernel_side();
  Status read_nccl();
  Status read_cuda();
  void take_collective(const ScannedCall& call);
  void take_hindered(const SeenCall& seen);
  void take_match(const MatchedCollective& match);
  /// Gives each call to `take`, in the order of time.
  template <typename Take>
  Status for_each_call(CallScan& scan, Take take);

  const Recording& recording_;
  ReadWatch watch_;
  ReportData data_;
  std::vector<ReportData::OfRank*> rank_of_;  ///< by index of the context
};

Status Reader::read_head() {
  for (const Recording::Node& node : recording_.nodes()) {
    auto row =
        Statement::create(recording_.database(), fmt::format(fmt::runtime(kHead), node.schema));
    if (!row) return fail(row.error());
    const int code = row->step();
    if (code != SQLITE_ROW && code != SQLITE_DONE)
      return fail(database_error(recording_.database(), "read the recording's facts", node.path));
    if (code == SQLITE_DONE)
      return fail({"make report", node.path, "the recording does not say what it is", ""});
    ReportData::Node& facts = data_.nodes.emplace_back();
    facts.kernel = bounded_text(*row, 0);
    facts.from_ns = bounded_time(row->integer(1));
    facts.to_ns = std::max(bounded_time(row->integer(2)), facts.from_ns);
    facts.end_reason = bounded_text(*row, 3);
    facts.clock_moved_ns = row->integer(4);
    data_.begin_ns = data_.begin_ns == 0 ? facts.from_ns : std::min(data_.begin_ns, facts.from_ns);
    data_.end_ns = std::max(data_.end_ns, facts.to_ns);
    if (auto status = read_losses(node); !status) return status;
    if (auto status = read_containers(node, data_.nodes.size() - 1); !status) return status;
  }
  return {};
}

Status Reader::read_containers(const Recording::Node& node, std::size_t index) {
  auto rows = Statement::create(
      recording_.database(),
      fmt::format("SELECT cgroup_id, namespace, pod, container FROM {}.containers LIMIT 100000",
                  node.schema));
  if (!rows) return fail(rows.error());
  int code = SQLITE_DONE;
  while ((code = rows->step()) == SQLITE_ROW) {
    std::string name = bounded_text(*rows, 3);
    if (name.size() == kIdLength && name.find_first_not_of("0123456789abcdef") == std::string::npos)
      name.resize(kShownOfId);
    if (!rows->is_null(2))
      name = fmt::format("{}/{} {}", bounded_text(*rows, 1), bounded_text(*rows, 2), name);
    data_.containers[{index, rows->integer(0)}] = std::move(name);
  }
  if (code == SQLITE_DONE) return {};
  return fail(database_error(recording_.database(), "read containers", node.path));
}

Status Reader::read_losses(const Recording::Node& node) {
  auto rows =
      Statement::create(recording_.database(),
                        fmt::format("SELECT reason, count FROM {}.losses LIMIT 1000", node.schema));
  if (!rows) return fail(rows.error());
  int code = SQLITE_DONE;
  while ((code = rows->step()) == SQLITE_ROW)
    data_.losses[bounded_text(*rows, 0)] +=
        static_cast<std::uint64_t>(bounded_time(rows->integer(1)));
  if (code == SQLITE_DONE) return {};
  return fail(database_error(recording_.database(), "read losses", node.path));
}

Status Reader::read_kernel_side() {
  for (const auto& [moments, select] : {std::pair{&data_.retransmits, kRetransmits},
                                        {&data_.waits, kWaits},
                                        {&data_.off_cpu, kOffCpu}}) {
    auto found = Moments::read(recording_, select);
    if (!found) return fail(found.error());
    *moments = std::move(*found);
  }
  return {};
}

template <typename Take>
Status Reader::for_each_call(CallScan& scan, Take take) {
  ScannedCall call;
  std::uint64_t calls = 0;
  while (true) {
    auto more = scan.next(call);
    if (!more) return fail(more.error());
    if (!*more) break;
    if (++calls % kCallsBetweenWatches == 0 && watch_.ask(calls))
      return fail({"make report", "", "interrupted", ""});
    take(call);
  }
  data_.damaged += scan.damaged();
  data_.left_out += scan.left_out();
  return {};
}

Status Reader::read_nccl() {
  auto scan = CallScan::create(recording_, CallTable::kNccl);
  if (!scan) return fail(scan.error());
  data_.nccl = std::make_unique<CallScan>(std::move(*scan));
  std::vector<CallSums> sums(data_.nccl->context_count());
  rank_of_.resize(data_.nccl->context_count());
  CollectiveMatcher matcher(*data_.nccl,
                            [this](const MatchedCollective& match) { take_match(match); });
  const Status done = for_each_call(*data_.nccl, [&](const ScannedCall& call) {
    const bool failed = is_failed(call, API_SOURCE_NCCL);
    sums[call.context->index].add(call, failed);
    if (failed) ++data_.errors[{call.context->function, call.result}];
    if (call.bytes) take_collective(call);
    matcher.add(call);
  });
  if (!done) return done;
  for (const auto& contexts : data_.nccl->contexts())
    for (const auto& [id, context] : contexts)
      data_.operations[context.op].add(sums[context.index]);
  data_.unmatched = matcher.incomplete();
  data_.mismatched = matcher.mismatched();
  return {};
}

void Reader::take_collective(const ScannedCall& call) {
  const CallContext& context = *call.context;
  ReportData::OfRank*& known = rank_of_[context.index];
  if (known == nullptr)
    known = &data_.ranks[{context.comm_id_hash, context.rank.value_or(-1), context.node}];
  ReportData::OfRank& rank = *known;
  rank.sums.add(call, is_failed(call, API_SOURCE_NCCL));
  SeenCall seen{call, 0, 0, {}};
  if (data_.retransmits.count() != 0)
    seen.retransmits = data_.retransmits.within(call, context.cgroup_id).count;
  if (data_.waits.count() != 0) seen.waited_ns = data_.waits.within(call, context.tid).duration_ns;
  if (data_.off_cpu.count() != 0) seen.off_cpu = data_.off_cpu.within(call, context.tid);
  data_.with_retransmits += seen.retransmits != 0 ? 1 : 0;
  data_.with_waits += seen.waited_ns != 0 ? 1 : 0;
  if (seen.retransmits != 0 || seen.waited_ns != 0) take_hindered(seen);
  if (rank.slowest.call.context == nullptr || call.span_ns > rank.slowest.call.span_ns)
    rank.slowest = seen;
  if (rank.longest_by_time.empty()) rank.longest_by_time.assign(ReportData::kPlotPoints, -1);
  double& point = rank.longest_by_time[point_of(call.unix_ns, data_.begin_ns, data_.end_ns,
                                                ReportData::kPlotPoints)];
  point = std::max(point, static_cast<double>(call.span_ns) / 1e6);
}

void Reader::take_hindered(const SeenCall& seen) {
  const auto slower = [](const SeenCall& a, const SeenCall& b) {
    return a.call.span_ns > b.call.span_ns;
  };
  std::vector<SeenCall>& list = data_.hindered;
  if (list.size() == ReportData::kMostHindered) {
    if (!slower(seen, list.back())) return;
    list.pop_back();
  }
  list.insert(std::upper_bound(list.begin(), list.end(), seen, slower), seen);
}

void Reader::take_match(const MatchedCollective& match) {
  Late& late = data_.late[match.comm_id_hash];
  const auto [first, last] = std::minmax_element(
      match.calls.begin(), match.calls.end(),
      [](const ScannedCall& a, const ScannedCall& b) { return a.unix_ns < b.unix_ns; });
  const auto behind = static_cast<double>(last->unix_ns - first->unix_ns);
  Late::Rank& rank = late.last[last->context->rank.value_or(-1)];
  ++rank.times;
  rank.sum_ns += behind;
  rank.context = last->context;
  late.ranks = match.calls.size();
  ++late.collectives;
  late.longest_ns = std::max(late.longest_ns, behind);
}

Status Reader::read_cuda() {
  auto scan = CallScan::create(recording_, CallTable::kCuda);
  if (!scan) return fail(scan.error());
  return for_each_call(*scan, [&](const ScannedCall& call) {
    const bool failed = is_failed(call, API_SOURCE_CUDA);
    const std::string& direction = call.context->direction;
    data_.directions[direction.empty() ? "(no copy) " + call.context->op : direction].add(call,
                                                                                          failed);
    if (failed) ++data_.errors[{call.context->function, call.result}];
  });
}

Result<ReportData> Reader::read() {
  if (auto status = read_head(); !status) return fail(status.error());
  if (auto status = read_kernel_side(); !status) return fail(status.error());
  if (auto status = read_nccl(); !status) return fail(status.error());
  if (auto status = read_cuda(); !status) return fail(status.error());
  return std::move(data_);
}

}  // namespace

void CallSums::add(const ScannedCall& call, bool failed) {
  ++calls;
  errors += failed ? 1 : 0;
  if (call.bytes && !failed) bytes += static_cast<double>(*call.bytes);
  duration_ns += static_cast<double>(call.span_ns);
  longest_ns = std::max(longest_ns, static_cast<double>(call.span_ns));
}

void CallSums::add(const CallSums& other) {
  calls += other.calls;
  errors += other.errors;
  bytes += other.bytes;
  duration_ns += other.duration_ns;
  longest_ns = std::max(longest_ns, other.longest_ns);
}

const std::pair<const std::int32_t, Late::Rank>& Late::worst() const {
  return *std::max_element(last.begin(), last.end(), [](const auto& a, const auto& b) {
    return a.second.sum_ns < b.second.sum_ns;
  });
}

double CallSums::mean_ns() const {
  return duration_ns / static_cast<double>(std::max<std::uint64_t>(calls, 1));
}

Result<Moments> Moments::read(const Recording& recording, const char* select) {
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
    moments.cut_ |= code == SQLITE_ROW;
  }
  return moments;
}

Moments::Found Moments::within(const ScannedCall& call, std::int64_t owner) const {
  const std::vector<Moment>& list = of_node_[call.context->node];
  Found found;
  auto at = std::lower_bound(
      list.begin(), list.end(), call.unix_ns,
      [](const Moment& moment, std::int64_t time) { return moment.unix_ns < time; });
  for (; at != list.end() && at->unix_ns <= call.end_ns(); ++at) {
    if (at->owner != owner && at->owner != -1) continue;
    ++found.count;
    found.duration_ns = bounded_time(found.duration_ns + at->duration_ns);
    found.longest_ns = std::max(found.longest_ns, at->duration_ns);
  }
  return found;
}

std::vector<std::uint64_t> Moments::over_time(std::int64_t begin_ns, std::int64_t end_ns,
                                              std::size_t points) const {
  std::vector<std::uint64_t> counts(points);
  for (const std::vector<Moment>& list : of_node_)
    for (const Moment& moment : list) ++counts[point_of(moment.unix_ns, begin_ns, end_ns, points)];
  return counts;
}

Result<ReportData> read_report_data(const Recording& recording, const Watch& watch) {
  return Reader(recording, watch).read();
}

}  // namespace ingero::record
