// SPDX-License-Identifier: Apache-2.0
#include "collect/call_collector.h"

#include <bpf/bpf.h>

#include <algorithm>
#include <cstring>

#include "collect/bpf_map.h"
#include "collect/loss_names.h"

namespace ingero::collect {
namespace {

constexpr std::uint32_t kIpv4 = 2, kIpv6 = 10;  // AF_INET, AF_INET6
constexpr std::size_t kMaxRetired = 16384;      // cgroup x function x direction; about 15 MB

void add(model::CallTotals& totals, const call_stats& stats) {
  totals.calls += stats.calls;
  totals.errors += stats.errors;
  totals.bytes += stats.bytes;
  totals.duration_ns += stats.duration_ns;
  totals.unfinished += stats.unfinished;
  totals.barriers += stats.barriers;
  totals.slow += stats.slow;
  for (std::size_t i = 0; i < totals.sizes.size(); ++i) totals.sizes[i] += stats.sizes[i];
  for (std::size_t i = 0; i < totals.durations.size(); ++i)
    totals.durations[i] += stats.durations[i];
}

}  // namespace

void CallCollector::watch_process(const model::ProcessKey& process) const {
  const process_key key{process.start_ns, process.tgid, 0};
  const std::uint64_t no_call_yet = 0;
  if (bpf_map_update_elem(handles_.processes, &key, &no_call_yet, BPF_NOEXIST) == 0)
    processes_changed();
}

/// The programs remember whom they found in the table.
void CallCollector::processes_changed() const {
  const std::uint32_t by_agent = CHANGED_BY_AGENT;
  std::uint64_t changes = 0;
  bpf_map_lookup_elem(handles_.process_changes, &by_agent, &changes);
  ++changes;
  bpf_map_update_elem(handles_.process_changes, &by_agent, &changes, BPF_ANY);
}

void CallCollector::process_executed(const model::ProcessKey& process, std::uint32_t exec_id) {
  std::vector<std::pair<comm_key, comm_info>> old;
  for_each_entry<comm_key, comm_info>(
      handles_.comms, [&](const comm_key& key, const comm_info& info) {
        if (key.tgid == process.tgid && key.process_start_ns == process.start_ns &&
            key.exec_id != exec_id)
          old.emplace_back(key, info);
      });
  free_communicators(old);
}

/// Communicators that nobody destroyed: their process or its program is gone.
void CallCollector::free_communicators(const std::vector<std::pair<comm_key, comm_info>>& old) {
  for (const auto& [key, info] : old) {
    ended_comms_.ended(key, info, known_ranks(key, info).rank);
    shares_.remove(handles_.comms, SHARED_COMMS, key, info.cgroup_id);
  }
}

std::vector<model::ProcessKey> CallCollector::processes() {
  auto found = counted_;
  calling_.clear();
  for_each_entry<process_key, std::uint64_t>(
      handles_.processes, [&](const process_key& key, std::uint64_t first_cgroup) {
        found.insert({key.tgid, key.start_ns});
        if (first_cgroup != 0 && !has_ended(key.tgid, key.start_ns))
          calling_.insert(static_cast<model::CgroupId>(first_cgroup));
      });
  std::erase_if(found,
                [this](const model::ProcessKey& process) { return ended_.contains(process); });
  return {found.begin(), found.end()};
}

CallCollector::Cgroups CallCollector::living_cgroups() const {
  Cgroups cgroups = living_;
  cgroups.insert(calling_.begin(), calling_.end());
  return cgroups;
}

bool CallCollector::has_counted() const {
  call_key key;
  return !retired_.empty() || bpf_map_get_next_key(handles_.calls, nullptr, &key) == 0 ||
         bpf_map_get_next_key(handles_.folded_calls, nullptr, &key) == 0;
}

std::size_t CallCollector::KeyHash::operator()(const call_key& key) const {
  const std::uint64_t what = (std::uint64_t{key.function} << 16) | key.direction;
  return model::IdentityHash::mix(key.cgroup_id ^ (std::uint64_t{key.tgid} << 32),
                                  key.process_start_ns ^ (what << 32));
}

bool CallCollector::SameKey::operator()(const call_key& a, const call_key& b) const {
  return std::memcmp(&a, &b, sizeof(a)) == 0;
}

/// Folds before there is a row: a cgroup may have a thousand processes.
model::CallTotals& CallCollector::row_of(call_key key, model::Snapshot& snapshot) {
  if (call_rows_ == CallRows::by_cgroup) key.tgid = 0, key.process_start_ns = 0;
  const auto [place, added] = row_at_.try_emplace(key, snapshot.calls.size());
  if (added)
    snapshot.calls.push_back({{key.tgid, key.process_start_ns},
                              static_cast<model::CgroupId>(key.cgroup_id),
                              key.function,
                              static_cast<std::uint8_t>(key.direction),
                              {}});
  return snapshot.calls[place->second].totals;
}

model::CallTotals& CallCollector::retired_row(const Place& place) {
  Retired& row = retired_[place];
  row.changed = rounds_;
  return row.totals;
}

void CallCollector::forget(
    const std::unordered_set<model::CgroupId, model::IdentityHash>& cgroups) {
  const auto is_listed = [&](std::uint64_t cgroup) {
    return cgroups.contains(static_cast<model::CgroupId>(cgroup));
  };
  std::erase_if(retired_, [&](const auto& entry) { return is_listed(std::get<0>(entry.first)); });
  std::erase_if(retired_errors_,
                [&](const auto& entry) { return is_listed(std::get<0>(entry.first)); });
  std::erase_if(retired_waits_, [&](const auto& entry) { return is_listed(entry.first); });
  error_codes_.forget(cgroups);
  ended_comms_.forget(cgroups);
  std::vector<call_key> folded;
  for_each_entry<call_key, call_stats>(handles_.folded_calls,
                                       [&](const call_key& key, const call_stats&) {
                                         if (is_listed(key.cgroup_id)) folded.push_back(key);
                                       });
  for (const call_key& key : folded)
    shares_.remove(handles_.folded_calls, SHARED_FOLDED_CALLS, key, key.cgroup_id);
}

/// A node that starts containers for months must not remember them all: the longest unchanged go first,
/// each as a whole, and their calls are reported as such. Those that still count stay.
void CallCollector::bound_retired() {
  if (retired_.size() <= kMaxRetired) return;
  std::map<std::uint64_t, std::uint64_t> changed;  // by cgroup
  for (const auto& [place, retired] : retired_) {
    std::uint64_t& last = changed[std::get<0>(place)];
    last = std::max(last, retired.changed);
  }
  std::vector<std::pair<std::uint64_t, std::uint64_t>> by_age;
  for (const auto& [cgroup, last] : changed)
    if (!is_living(static_cast<model::CgroupId>(cgroup))) by_age.emplace_back(last, cgroup);
  std::sort(by_age.begin(), by_age.end());
  std::unordered_set<model::CgroupId, model::IdentityHash> old;
  std::size_t left = retired_.size();
  for (auto it = by_age.begin(); it != by_age.end() && left > kMaxRetired * 3 / 4; ++it) {
    const std::uint64_t cgroup = it->second;
    for (auto row = retired_.lower_bound({cgroup, 0, 0});
         row != retired_.end() && std::get<0>(row->first) == cgroup; ++row, --left)
      forgotten_calls_ += row->second.totals.calls;
    old.insert(static_cast<model::CgroupId>(cgroup));
  }
  forget(old);
}

void CallCollector::read(model::Snapshot& snapshot, CallRows rows) {
  ++rounds_;
  call_rows_ = rows;
  row_at_.clear();
  // Rows are large: to grow step by step would copy them several times and take twice the memory.
  snapshot.calls.reserve(last_rows_ + last_rows_ / 8 + 64);
  read_communicators(snapshot);
  read_unscaled(snapshot);
  read_calls(snapshot);
  read_errors(snapshot);
  read_retransmits(snapshot);
  read_waits(snapshot);
  read_losses(snapshot);
  free_ended();
  if (layouts_ != nullptr) {
    layouts_->drop_gone();  // after the last use of what is known of them
    layouts_->resolve_asked();
  }
  ended_comms_.fill(snapshot.ended_collectives);
  last_rows_ = snapshot.calls.size();
}

void CallCollector::look(model::Snapshot& snapshot) {
  read_communicators(snapshot);
  read_retransmits(snapshot);
  processes();
  if (layouts_ != nullptr) layouts_->resolve_asked();
}

/// Without a look into the process, which may be gone.
CommRanks CallCollector::known_ranks(const comm_key& key, const comm_info& info) const {
  if (info.nranks != 0) return {info.rank, info.nranks};
  const auto ranks = layouts_ ? layouts_->known_ranks(key) : std::nullopt;
  return ranks.value_or(CommRanks{info.rank, 0});
}

CommRanks CallCollector::ranks_of(const comm_key& key, const comm_info& info) {
  if (info.nranks != 0) return {info.rank, info.nranks};
  if (layouts_ != nullptr) {
    if (const auto ranks = layouts_->ranks_of({key, info.cgroup_id, info.library})) return *ranks;
  }
  return {info.rank, 0};
}

void CallCollector::read_communicators(model::Snapshot& snapshot) {
  ended_comms_.begin();
  for_each_entry<comm_key, comm_info>(
      handles_.comms, [&](const comm_key& key, const comm_info& info) {
        const bool ended = has_ended(key.tgid, key.process_start_ns);
        const CommRanks ranks = ended ? known_ranks(key, info) : ranks_of(key, info);
        ended_comms_.seen(key, info, ranks.rank);
        if (ended) return;
        model::Communicator comm;
        comm.process = {key.tgid, key.process_start_ns};
        comm.cgroup = static_cast<model::CgroupId>(info.cgroup_id);
        comm.handle = key.comm;
        comm.id_hash = info.id_hash;
        comm.rank = ranks.rank;
        comm.nranks = ranks.nranks;
        comm.collectives = info.collectives;
        const auto unix_ns = [&](std::uint64_t time) {
          return time ? static_cast<std::int64_t>(clock_.unix_from_monotonic(time)) : 0;
        };
        comm.created_unix_ns = unix_ns(info.created_ns);
        comm.last_enqueue_unix_ns = unix_ns(info.last_enqueue_ns);
        comm.parent = info.parent;
        comm.function = info.function;
        comm.name.assign(info.name, ::strnlen(info.name, sizeof(info.name)));
        comm.library = info.library;
        snapshot.communicators.push_back(std::move(comm));
      });
  ended_comms_.finish();
}

/// A forged number of ranks must not poison a total.
std::uint64_t CallCollector::scaled(std::uint64_t bytes, std::uint64_t ranks) {
  std::uint64_t product = 0;
  return __builtin_mul_overflow(bytes, ranks, &product) ? bytes : product;
}

/// Ranks of a communicator, 1 where they are not known. `gone`: it has been destroyed.
std::uint64_t CallCollector::size_of(const comm_key& key, bool& gone) const {
  comm_info info{};
  gone = bpf_map_lookup_elem(handles_.comms, &key, &info) != 0;
  if (!gone && info.nranks != 0) return info.nranks;
  const auto ranks = layouts_ ? layouts_->known_ranks(key) : std::nullopt;
  return ranks ? ranks->nranks : 1;
}

/// Shares of one rank become message sizes as soon as the communicator's size is known; what a destroyed
/// one has counted is kept as it is then.
void CallCollector::read_unscaled(model::Snapshot& snapshot) {
  std::vector<std::pair<unscaled_key, std::uint64_t>> done;
  for_each_entry<unscaled_key, std::uint64_t>(
      handles_.unscaled, [&](const unscaled_key& key, std::uint64_t bytes) {
        bool gone = false;
        const comm_key comm{key.comm, key.call.process_start_ns, key.call.tgid, key.exec_id};
        const std::uint64_t ranks = size_of(comm, gone);
        if (gone || has_ended(key.call.tgid, key.call.process_start_ns)) {
          done.emplace_back(key, ranks);
          return;
        }
        row_of(key.call, snapshot).bytes += scaled(bytes, ranks);
      });
  for (const auto& [key, ranks] : done) {
    std::uint64_t bytes = 0;  // as they are now: nothing may come between reading and deleting
    if (!shares_.take(handles_.unscaled, SHARED_UNSCALED, key, key.call.cgroup_id, bytes)) continue;
    retired_row({key.call.cgroup_id, key.call.function, key.call.direction}).bytes +=
        scaled(bytes, ranks);
  }
}

/// Errors that are in the total without their code: told under a code of their own, so that the sum of the codes
/// is the number of errors.
void CallCollector::count_uncoded(const call_key& key, const call_stats& stats, bool ended) {
  if (stats.uncoded == 0) return;
  auto& sums = ended ? retired_errors_ : uncoded_;
  sums[{key.cgroup_id, key.function, model::kOtherErrorCode}] += stats.uncoded;
}

void CallCollector::read_calls(model::Snapshot& snapshot) {
  std::vector<call_key> done;
  living_.clear();
  counted_.clear();
  uncoded_.clear();
  for_each_entry<call_key, call_stats>(
      handles_.calls, [&](const call_key& key, const call_stats& stats) {
        count_uncoded(key, stats, has_ended(key.tgid, key.process_start_ns));
        if (has_ended(key.tgid, key.process_start_ns)) {
          add(retired_row({key.cgroup_id, key.function, key.direction}), stats);
          done.push_back(key);
        } else {
          add(row_of(key, snapshot), stats);
          living_.insert(static_cast<model::CgroupId>(key.cgroup_id));
          counted_.insert({key.tgid, key.process_start_ns});
        }
      });
  for (const call_key& key : done) bpf_map_delete_elem(handles_.calls, &key);
  for_each_entry<call_key, call_stats>(handles_.folded_calls,
                                       [&](const call_key& key, const call_stats& stats) {
                                         count_uncoded(key, stats, false);
                                         add(row_of(key, snapshot), stats);
                                       });
  bound_retired();
  for (const auto& [place, retired] : retired_) {
    const auto& [cgroup, function, direction] = place;
    row_of({cgroup, 0, 0, function, direction}, snapshot).add(retired.totals);
  }
}

void CallCollector::read_errors(model::Snapshot& snapshot) {
  std::vector<error_key> done;
  std::map<ErrorPlace, std::uint64_t> sums = retired_errors_;
  for (const auto& [place, count] : uncoded_) sums[place] += count;
  std::uint64_t folded_now = 0, folded_then = 0;
  for_each_entry<error_key, std::uint64_t>(handles_.errors, [&](const error_key& key,
                                                                std::uint64_t count) {
    const std::int32_t code = error_codes_.admit(key.call.cgroup_id, key.call.function, key.code);
    const bool folded = code == model::kOtherErrorCode;
    const ErrorPlace place{key.call.cgroup_id, key.call.function, code};
    sums[place] += count;
    folded_now += folded ? 1 : 0;
    if (!has_ended(key.call.tgid, key.call.process_start_ns)) return;
    retired_errors_[place] += count;
    folded_then += folded ? 1 : 0;
    done.push_back(key);
  });
  snapshot.folded_error_codes = folded_codes_ + folded_now;
  folded_codes_ += folded_then;
  for (const error_key& key : done)
    shares_.remove(handles_.errors, SHARED_ERRORS, key, key.call.cgroup_id);
  for (const auto& [place, count] : sums) {
    snapshot.errors.push_back({static_cast<model::CgroupId>(std::get<0>(place)), std::get<1>(place),
                               std::get<2>(place), count});
  }
}

void CallCollector::drop_retransmits(const std::vector<model::RetransmitSeries>& rows) const {
  for (const model::RetransmitSeries& row : rows) {
    const retransmit_key key{model::to_number(row.cgroup), row.netns, row.ipv6 ? kIpv6 : kIpv4};
    bpf_map_delete_elem(handles_.retransmits, &key);
  }
}

void CallCollector::read_retransmits(model::Snapshot& snapshot) const {
  for_each_entry<retransmit_key, std::uint64_t>(
      handles_.retransmits, [&](const retransmit_key& key, std::uint64_t segments) {
        snapshot.retransmits.push_back({static_cast<model::CgroupId>(key.cgroup_id), key.netns,
                                        key.family == kIpv6, false, segments});
      });
}

void CallCollector::read_waits(model::Snapshot& snapshot) {
  std::vector<wait_key> done;
  for_each_entry<wait_key, wait_stats>(
      handles_.waits, [&](const wait_key& key, const wait_stats& stats) {
        model::WaitSeries row{{key.tgid, key.process_start_ns},
                              static_cast<model::CgroupId>(key.cgroup_id),
                              stats.waits,
                              stats.wait_ns,
                              {}};
        std::copy(std::begin(stats.durations), std::end(stats.durations), row.durations.begin());
        if (!has_ended(key.tgid, key.process_start_ns)) {
          snapshot.waits.push_back(row);
          return;
        }
        model::WaitSeries& retired = retired_waits_[key.cgroup_id];
        retired.cgroup = row.cgroup;
        retired.waits += row.waits;
        retired.wait_ns += row.wait_ns;
        for (std::size_t i = 0; i < row.durations.size(); ++i)
          retired.durations[i] += row.durations[i];
        done.push_back(key);
      });
  for (const wait_key& key : done) bpf_map_delete_elem(handles_.waits, &key);
  bound_waits();
  for (const auto& [cgroup, row] : retired_waits_) snapshot.waits.push_back(row);
}

/// Of cgroups that count nothing any more, the lowest ids first: they are the oldest.
void CallCollector::bound_waits() {
  for (auto it = retired_waits_.begin();
       it != retired_waits_.end() && retired_waits_.size() > kMaxRetired;) {
    it = is_living(static_cast<model::CgroupId>(it->first)) ? std::next(it)
                                                            : retired_waits_.erase(it);
  }
}

void CallCollector::read_losses(model::Snapshot& snapshot) const {
  for (const LossName& loss : loss_names()) {
    const std::uint32_t index = loss.reason;
    std::uint64_t value = 0;
    bpf_map_lookup_elem(handles_.losses, &index, &value);
    (loss.event ? snapshot.events_lost : snapshot.unattributed_calls)[loss.name] = value;
  }
  snapshot.unattributed_calls["ended_container_forgotten"] = forgotten_calls_;
  if (layouts_ != nullptr) layouts_->add_counts(snapshot.events_lost);
}

void CallCollector::free_ended_streams() {
  std::vector<std::pair<stream_key, std::uint64_t>> old;
  for_each_entry<stream_key, stream_state>(handles_.streams,
                                           [&](const stream_key& key, const stream_state& state) {
                                             if (has_ended(key.tgid, key.process_start_ns))
                                               old.emplace_back(key, state.call.cgroup_id);
                                           });
  for (const auto& [key, cgroup] : old)
    shares_.remove(handles_.streams, SHARED_STREAMS, key, cgroup);
}

/// Entries of ended processes in the maps that are not counters.
void CallCollector::free_ended() {
  if (ended_.empty()) return;
  std::vector<std::pair<comm_key, comm_info>> old_comms;
  for_each_entry<comm_key, comm_info>(handles_.comms,
                                      [&](const comm_key& key, const comm_info& info) {
                                        if (has_ended(key.tgid, key.process_start_ns))
                                          old_comms.emplace_back(key, info);
                                      });
  free_communicators(old_comms);
  free_ended_streams();
  for (const model::ProcessKey& process : ended_) {
    const process_key key{process.start_ns, process.tgid, 0};
    bpf_map_delete_elem(handles_.processes, &key);
  }
  processes_changed();
  ended_.clear();
  shares_.prune();
}

}  // namespace ingero::collect
