// SPDX-License-Identifier: Apache-2.0
#include "collect/comm_layout.h"

#include <bpf/bpf.h>

#include <algorithm>
#include <cerrno>

#include "base/clock.h"
#include "collect/process_memory.h"

namespace ingero::collect {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kMaxCommBytes = 2 << 20;  // the largest struct ncclComm seen is 1.2 MB
constexpr std::uint64_t kStructMagic = 0x0280028002800280;  // first and last word, since 2.21
constexpr auto kReadDeadline = 3s;
constexpr std::uint64_t kSecond = 1'000'000'000;

// What a container may cost.
constexpr std::uint64_t kCheckPause = kSecond / 20;
constexpr std::uint64_t kFirstCheckPause = kSecond / 200;
constexpr std::uint64_t kSearchPause = kSecond / 4;  // 2 MiB each
constexpr std::uint64_t kFirstSearches = 16;         // without a pause
constexpr std::uint64_t kMaxSearches = 256;
constexpr std::ptrdiff_t kMaxUnfinishedOfOne = 16;
constexpr std::size_t kMaxLibraries = 64;
constexpr std::size_t kMaxAskedAtOnce = 64;
constexpr std::uint64_t kLongestPause = 60 * kSecond;
// And all together.
constexpr std::size_t kMaxLearned = 4096;
constexpr std::size_t kMaxUnfinished = 1024;
constexpr int kLooks = 4;

std::uint64_t now_ns() { return system_clock_source().monotonic_ns(); }

auto id_of(const comm_key& key) {
  return std::tuple{key.comm, key.process_start_ns, key.tgid, key.exec_id};
}

/// Whether it has lived since then: its entry goes before its memory does, so what was read before this
/// was asked is its own.
bool is_alive(int comms, const comm_key& key, std::uint64_t created_ns) {
  comm_info info{};
  return bpf_map_lookup_elem(comms, &key, &info) == 0 && info.created_ns == created_ns;
}

Error gone(const comm_key& key) {
  return Error::from_errno(ESRCH, "read communicator", "pid " + std::to_string(key.tgid));
}

std::optional<std::vector<char>> read_window(const comm_key& key, const CommStructure& structure) {
  auto window = read_process_memory(key.tgid, key.comm + structure.rank_offset - 8, kRanksWindow);
  if (window.size() < kRanksWindow) return std::nullopt;
  return window;
}

bool has_magic(const comm_key& key, std::uint64_t offset) {
  const auto word = read_process_memory(key.tgid, key.comm + offset, sizeof(kStructMagic));
  return word.size() == sizeof(kStructMagic) &&
         std::equal(word.begin(), word.end(), reinterpret_cast<const char*>(&kStructMagic));
}

}  // namespace

/// What stands where the ranks are to be.
struct CommLayouts::Window {
  std::vector<char> bytes;
};

struct CommLayouts::Resolved {
  std::vector<std::pair<comm_key, CommRanks>> ranks;
};

// ---- what is known ---------------------------------------------------------------------------------

void CommLayouts::add_library(std::uint32_t index, std::string_view nccl_version,
                              model::LibraryKind kind) {
  if (index == 0) return;
  const std::lock_guard lock(mutex_);
  // The index may have been another file's.
  listed_.erase(index);
  std::erase_if(learned_, [&](const auto& entry) {
    if (entry.first.second != index) return false;
    withdraw(index, entry.first.first);
    return true;
  });
  withdraw(index, 0);
  if (kind == model::LibraryKind::kRccl) return;
  const auto structure = known_structure(nccl_version);
  if (!structure) return;
  listed_[index] = *structure;
  publish({{}, 0, index}, 0, *structure);
}

void CommLayouts::publish(const CommPlace& place, std::uint64_t cgroup,
                          const CommStructure& structure) const {
  const layout_key key{cgroup, place.library, 0};
  const comm_layout layout{structure.rank_offset, structure.end_magic_offset};
  bpf_map_update_elem(handles_.layouts, &key, &layout, BPF_ANY);
}

void CommLayouts::withdraw(std::uint32_t library, std::uint64_t cgroup) const {
  const layout_key key{cgroup, library, 0};
  bpf_map_delete_elem(handles_.layouts, &key);
}

CommLayouts::Learned* CommLayouts::learned_of(const CommPlace& place) {
  const Owner owner{place.cgroup, place.library};
  if (const auto it = learned_.find(owner); it != learned_.end()) return &it->second;
  const auto first = learned_.lower_bound({place.cgroup, 0});
  const auto last = learned_.upper_bound({place.cgroup, ~std::uint32_t{0}});
  const bool too_many = static_cast<std::size_t>(std::distance(first, last)) >= kMaxLibraries;
  if (too_many || learned_.size() >= kMaxLearned) {
    ++refused_;
    return nullptr;
  }
  return &learned_[owner];
}

std::optional<CommStructure> CommLayouts::structure_of(const CommPlace& place) const {
  const auto learned = learned_.find({place.cgroup, place.library});
  if (learned != learned_.end()) {
    if (learned->second.structure) return learned->second.structure;
    if (learned->second.listed_is_wrong) return std::nullopt;
  }
  const auto listed = listed_.find(place.library);
  if (listed == listed_.end()) return std::nullopt;
  return listed->second;
}

void CommLayouts::forget(const std::unordered_set<model::CgroupId, model::IdentityHash>& cgroups) {
  const std::lock_guard lock(mutex_);
  std::erase_if(learned_, [&](const auto& entry) {
    if (!cgroups.contains(static_cast<model::CgroupId>(entry.first.first))) return false;
    withdraw(entry.first.second, entry.first.first);
    return true;
  });
}

void CommLayouts::add_counts(std::map<std::string, std::uint64_t>& events_lost) const {
  const std::lock_guard lock(mutex_);
  events_lost["communicator_read_hung"] = hung_;
  events_lost["communicator_read_refused"] = refused_;
  events_lost["communicator_layout_wrong"] = mismatches_;
}

std::vector<LayoutState> CommLayouts::states() const {
  const std::lock_guard lock(mutex_);
  std::vector<LayoutState> states;
  for (const auto& [owner, learned] : learned_) {
    const auto structure = structure_of({{}, owner.first, owner.second});
    states.push_back({owner.second, owner.first, structure ? structure->rank_offset : 0,
                      learned.found, learned.samples.size(), learned.verified, learned.mismatches});
  }
  return states;
}

// ---- work ------------------------------------------------------------------------------------------

/// That too many wait at the moment costs nothing: others are compared, and what was asked for is asked
/// for again.
void CommLayouts::count(const CommPlace& place, const Error& error) {
  if (error.code == ETIMEDOUT) ++hung_;
  if (error.code == EBUSY && worker_->stuck(place.cgroup)) ++refused_;
}

template <typename T>
bool CommLayouts::submit(const CommPlace& place, std::function<Result<T>()> work,
                         std::function<void(const Result<T>&)> done) {
  if (worker_ == nullptr) return false;
  const auto accepted = worker_->run<T>(
      {place.cgroup, "read communicator", "pid " + std::to_string(place.key.tgid), kReadDeadline},
      std::move(work), [this, place, done = std::move(done)](const Result<T>& result) {
        const std::lock_guard lock(mutex_);
        if (!result) count(place, result.error());
        done(result);
      });
  if (!accepted) count(place, accepted.error());
  return accepted.has_value();
}

// ---- checked with, and found in, communicators whose ranks the arguments told ------------------------

void CommLayouts::check(const CommPlace& place, const CommRanks& ranks, std::uint64_t created_ns) {
  if (place.library == 0 || ranks.nranks == 0 || ranks.rank < 0) return;
  const std::lock_guard lock(mutex_);
  look_at({place, ranks, created_ns, 0});
}

void CommLayouts::look_at(const Example& example) {
  Learned* const learned = learned_of(example.place);
  if (learned == nullptr) return;
  if (const auto structure = structure_of(example.place)) {
    compare(*learned, example, *structure);
  } else {
    search(*learned, example);
  }
}

void CommLayouts::compare(Learned& learned, const Example& example,
                          const CommStructure& structure) {
  const std::uint64_t now = now_ns();
  const bool verified = learned.verified > 0;
  if (example.looks == 0 && now < learned.next_check_ns)
    return verified ? void() : keep(example);  // once verified, the next ones do as well
  learned.next_check_ns = now + (verified ? kCheckPause : kFirstCheckPause);
  submit<Window>(
      example.place,
      [example, structure, comms = handles_.comms]() -> Result<Window> {
        auto window = read_window(example.place.key, structure);
        if (!window || !is_alive(comms, example.place.key, example.created_ns))
          return fail(gone(example.place.key));
        return Window{std::move(*window)};
      },
      [this, example, structure](const Result<Window>& window) {
        compared(example, structure, window);
      });
}

void CommLayouts::compared(const Example& example, const CommStructure& structure,
                           const Result<Window>& window) {
  Learned* const learned = learned_of(example.place);
  if (!window || learned == nullptr || structure_of(example.place) != structure) return;
  if (ranks_in_window(window->bytes.data()) == example.ranks) {
    ++learned->verified;
    return;
  }
  // A communicator that is still being made shows anything, and nothing at first.
  if (example.looks == 0 || example.looks == kLooks) search(*learned, example);
  if (example.looks < kLooks) return look_later(example);
  if (!is_empty_window(window->bytes.data())) reject(*learned, example.place);
}

void CommLayouts::reject(Learned& learned, const CommPlace& place) {
  ++learned.mismatches;
  ++mismatches_;
  learned.verified = 0;
  if (learned.found) {
    learned.structure.reset();
    learned.found = false;
    learned.samples = {};
    learned.sampled.clear();
  } else {
    learned.listed_is_wrong = true;
  }
  publish(place, place.cgroup, {});  // hides the listed one from this container
}

void CommLayouts::search(Learned& learned, const Example& example) {
  if (learned.sampled.contains({id_of(example.place.key), example.created_ns})) return;
  const std::uint64_t now = now_ns();
  if (learned.searches >= kFirstSearches && now < learned.next_search_ns) return keep(example);
  if (learned.searches >= kMaxSearches) return;
  learned.next_search_ns = now + kSearchPause;
  ++learned.searches;
  using Places = std::vector<std::uint32_t>;
  submit<Places>(
      example.place,
      [example, comms = handles_.comms]() -> Result<Places> {
        const comm_key& key = example.place.key;
        const auto memory = read_process_memory(key.tgid, key.comm, kMaxCommBytes);
        if (!is_alive(comms, key, example.created_ns)) return fail(gone(key));
        return places_of_ranks(memory, example.ranks);
      },
      [this, example](const Result<Places>& places) { searched(example, places); });
}

void CommLayouts::searched(const Example& example,
                           const Result<std::vector<std::uint32_t>>& places) {
  Learned* const learned = learned_of(example.place);
  if (!places || learned == nullptr || learned->structure) return;
  const auto listed = structure_of(example.place);
  if (places->empty() && !listed) return look_later(example);
  if (places->empty() ||
      !learned->sampled.emplace(id_of(example.place.key), example.created_ns).second)
    return;
  learned->samples.add(example.ranks, *places);
  const auto place = learned->samples.place();
  if (!place || (listed && listed->rank_offset == *place)) return;
  if (listed) reject(*learned, example.place);
  learned->structure = CommStructure{*place, 0};
  learned->found = true;
  publish(example.place, example.place.cgroup, *learned->structure);
}

void CommLayouts::look_later(Example example) {
  if (++example.looks <= kLooks) keep(example);
}

/// One that has been looked at goes before those that wait for their first look: else these would fill the
/// container's room, and none would ever come to its end.
void CommLayouts::keep(const Example& example) {
  std::ptrdiff_t of_container = 0;
  Example* unlooked = nullptr;
  for (Example& other : unfinished_) {
    if (other.place.cgroup != example.place.cgroup) continue;
    ++of_container;
    if (id_of(other.place.key) == id_of(example.place.key) &&
        other.created_ns == example.created_ns) {
      other.looks = std::max(other.looks, example.looks);
      return;
    }
    if (other.looks == 0) unlooked = &other;
  }
  if (of_container < kMaxUnfinishedOfOne && unfinished_.size() < kMaxUnfinished)
    unfinished_.push_back(example);
  else if (example.looks > 0 && unlooked != nullptr) *unlooked = example;
}

void CommLayouts::look_again() {
  const std::lock_guard lock(mutex_);
  for (const Example& example : std::exchange(unfinished_, {})) look_at(example);
}

// ---- ranks that no argument told ---------------------------------------------------------------------

std::optional<CommRanks> CommLayouts::known_ranks(const comm_key& key) const {
  const std::lock_guard lock(mutex_);
  const auto it = resolved_.find(id_of(key));
  if (it == resolved_.end()) return std::nullopt;
  return it->second;
}

std::optional<CommRanks> CommLayouts::ranks_of(const CommPlace& place) {
  const std::lock_guard lock(mutex_);
  const Id id = id_of(place.key);
  if (const auto it = resolved_.find(id); it != resolved_.end()) return it->second;
  if (worker_ != nullptr && structure_of(place)) asked_.try_emplace(id, Asked{place});
  return std::nullopt;
}

void CommLayouts::resolve_asked() {
  const std::lock_guard lock(mutex_);
  const std::uint64_t now = now_ns();
  std::map<std::uint64_t, std::vector<CommPlace>> due;
  for (auto& [id, asked] : asked_) {
    auto& places = due[asked.place.cgroup];
    if (asked.next_ns > now || places.size() >= kMaxAskedAtOnce) continue;
    asked.pause_ns = std::clamp(asked.pause_ns * 2, kSecond / 2, kLongestPause);
    asked.next_ns = now + asked.pause_ns;
    places.push_back(asked.place);
  }
  for (auto& [cgroup, places] : due)
    if (!places.empty()) submit_asked(cgroup, std::move(places));
}

/// A layout that was never compared with arguments of this container counts only for a communicator
/// whose first and last word are where the release has them.
void CommLayouts::submit_asked(std::uint64_t cgroup, std::vector<CommPlace> places) {
  std::vector<std::tuple<comm_key, CommStructure, bool>> work;
  for (const CommPlace& place : places) {
    const auto structure = structure_of(place);
    if (!structure) continue;
    const auto learned = learned_.find({cgroup, place.library});
    const bool trusted =
        learned != learned_.end() && (learned->second.found || learned->second.verified > 0);
    if (trusted || structure->end_magic_offset != 0)
      work.emplace_back(place.key, *structure, trusted);
  }
  if (work.empty()) return;
  submit<Resolved>(
      places.front(),
      [work = std::move(work), comms = handles_.comms]() -> Result<Resolved> {
        Resolved resolved;
        for (const auto& [key, structure, trusted] : work) {
          if (!trusted && !(has_magic(key, 0) && has_magic(key, structure.end_magic_offset)))
            continue;
          const auto window = read_window(key, structure);
          const auto ranks = window ? ranks_in_window(window->data()) : std::nullopt;
          comm_info info{};
          if (ranks && bpf_map_lookup_elem(comms, &key, &info) == 0)
            resolved.ranks.emplace_back(key, *ranks);
        }
        return resolved;
      },
      [this](const Result<Resolved>& resolved) {
        if (!resolved) return;
        for (const auto& [key, ranks] : resolved->ranks) {
          if (asked_.erase(id_of(key)) != 0) resolved_.emplace(id_of(key), ranks);
        }
      });
}

void CommLayouts::drop_gone() {
  const std::lock_guard lock(mutex_);
  const auto is_gone = [this](const auto& entry) {
    const auto& [comm, start_ns, tgid, exec_id] = entry.first;
    const comm_key key{comm, start_ns, tgid, exec_id};
    comm_info info{};
    return bpf_map_lookup_elem(handles_.comms, &key, &info) != 0;
  };
  std::erase_if(asked_, is_gone);
  std::erase_if(resolved_, is_gone);
}

}  // namespace ingero::collect
