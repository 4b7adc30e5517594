// SPDX-License-Identifier: Apache-2.0
#include "k8s/lease_elector.h"

#include <algorithm>
#include <exception>
#include <system_error>
#include <utility>

#include "base/text.h"
#include "base/timestamp.h"
#include "base/utf8.h"
#include "k8s/api_object.h"

namespace ingero::k8s {

namespace {

using nlohmann::json;

constexpr std::chrono::seconds kLogInterval{60};
constexpr std::chrono::seconds kReleaseLimit{2};
constexpr std::size_t kMaxIdentityBytes = 253;

std::uint64_t to_ns(std::chrono::nanoseconds time) {
  return static_cast<std::uint64_t>(time.count());
}

}  // namespace

Result<std::unique_ptr<LeaseElector>> LeaseElector::start(Transport& transport, Writer& writer,
                                                          LeaseOptions options,
                                                          ChangeHandler on_change,
                                                          LeaseSeams seams) {
  const std::string object = options.k8s_namespace + "/" + options.name;
  if (options.k8s_namespace.empty() || options.name.empty() || options.identity.empty())
    return fail(Error{"start leader election", object, "a name or the identity is empty", "", 0});
  if (!seams.wait) seams.wait = wait_for;
  auto elector = std::unique_ptr<LeaseElector>(new LeaseElector(
      transport, writer, std::move(options), std::move(on_change), std::move(seams)));
  try {
    elector->thread_ = std::thread([self = elector.get()] { self->run(); });
  } catch (const std::system_error& error) {
    return fail(Error{"start leader election", object, error.what(), "", error.code().value()});
  }
  return elector;
}

LeaseElector::LeaseElector(Transport& transport, Writer& writer, LeaseOptions options,
                           ChangeHandler on_change, LeaseSeams seams)
    : transport_(transport),
      writer_(writer),
      options_(std::move(options)),
      on_change_(std::move(on_change)),
      seams_(std::move(seams)),
      collection_(
          fmt::format("/apis/coordination.k8s.io/v1/namespaces/{}/leases", options_.k8s_namespace)),
      backoff_(options_.backoff, seams_.random),
      log_limiter_(kLogInterval, 16, *seams_.clock) {}

LeaseElector::~LeaseElector() { stop(); }

void LeaseElector::stop() {
  if (!thread_.joinable()) return;
  stop_.request_stop();
  {
    std::unique_lock lock(mutex_);
    finished_changed_.wait_for(lock, kReleaseLimit, [this] { return finished_; });
  }
  release_stop_.request_stop();
  thread_.join();
}

bool LeaseElector::is_leader() const {
  const std::lock_guard lock(mutex_);
  return seams_.clock->boottime_ns() < leads_until_ns_;
}

std::string LeaseElector::holder() const {
  const std::lock_guard lock(mutex_);
  return holder_;
}

LeaseStats LeaseElector::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

void LeaseElector::run() {
  while (!stop_.stop_requested()) {
    Status done;
    try {
      done = attempt();
    } catch (const std::exception& error) {
      done = fail(Error{"elect leader", options_.name, escape_terminal(error.what()), "", 0});
    }
    if (stop_.stop_requested()) break;
    if (!done) {
      lease_.reset();
      note_failure(done.error());
    }
    announce();
    seams_.wait(time_to_next(done.has_value()), stop_.get_token());
  }
  release();
  const std::lock_guard lock(mutex_);
  finished_ = true;
  finished_changed_.notify_all();
}

Status LeaseElector::attempt() {
  // The term begins before the request is sent, as the server may see it at any time after.
  const std::uint64_t begin_ns = seams_.clock->boottime_ns();
  if (!lease_) {
    auto looked = look();
    if (!looked && looked.error().code == kHttpNotFound)
      return write(WriteMethod::post, claim(seams_.clock->realtime_ns()), begin_ns);
    if (!looked) return looked;
  }
  if (may_take()) return write(WriteMethod::put, claim(seams_.clock->realtime_ns()), begin_ns);
  set_leads_until(0);
  lease_.reset();  // to be looked at anew
  return {};
}

Status LeaseElector::look() {
  const std::string path = collection_ + "/" + options_.name;
  auto text = transport_.get(path, stop_.get_token());
  if (!text) return fail(text.error());
  auto parsed = json::parse(*text, nullptr, false);
  if (text_at(parsed, {"metadata", "resourceVersion"}).empty())
    return fail(Error{"read lease", path, "the answer is no object", "", 0});
  observe(std::move(parsed));
  return {};
}

Status LeaseElector::write(WriteMethod method, const json& lease, std::uint64_t begin_ns) {
  const std::string path =
      method == WriteMethod::post ? collection_ : collection_ + "/" + options_.name;
  auto written = writer_.send(method, path, lease, BodyType::json, stop_.get_token());
  if (!written) return fail(written.error());
  observe(std::move(*written));
  // Next time it is looked at, if the answer does not say which version to replace.
  if (!is_mine() || text_at(*lease_, {"metadata", "resourceVersion"}).empty()) lease_.reset();
  set_leads_until(begin_ns + to_ns(options_.renew_deadline));
  const std::lock_guard lock(mutex_);
  ++stats_.renewals;
  stats_.last_error.clear();
  return {};
}

void LeaseElector::observe(json lease) {
  const std::string holder = text_at(lease, {"spec", "holderIdentity"});
  std::string renewal = holder + "\n" + text_at(lease, {"spec", "renewTime"});
  if (renewal != renewal_) {
    renewal_ = std::move(renewal);
    renewal_ns_ = seams_.clock->boottime_ns();
  }
  lease_ = std::move(lease);
  const std::lock_guard lock(mutex_);
  holder_ = truncate(escape_terminal(holder), kMaxIdentityBytes);
}

bool LeaseElector::is_mine() const {
  return text_at(*lease_, {"spec", "holderIdentity"}) == options_.identity;
}

bool LeaseElector::may_take() const {
  const bool is_free = text_at(*lease_, {"spec", "holderIdentity"}).empty();
  return is_free || is_mine() ||
         seams_.clock->boottime_ns() >= renewal_ns_ + to_ns(options_.duration);
}

json LeaseElector::claim(std::uint64_t unix_ns) const {
  const std::string now = format_micro_timestamp(unix_ns);
  json lease = lease_.value_or(json{
      {"apiVersion", "coordination.k8s.io/v1"},
      {"kind", "Lease"},
      {"metadata", {{"name", options_.name}, {"namespace", options_.k8s_namespace}}},
  });
  json& spec = lease["spec"];
  if (!spec.is_object()) spec = json::object();
  if (text_at(spec, {"holderIdentity"}) != options_.identity) {
    const auto before = spec.find("leaseTransitions");
    const bool counts = before != spec.end() && before->is_number_integer();
    spec["leaseTransitions"] =
        counts ? std::clamp<std::int64_t>(before->get<std::int64_t>(), 0, 1'000'000'000) + 1 : 0;
    spec["acquireTime"] = now;
    spec["holderIdentity"] = options_.identity;
  }
  spec["leaseDurationSeconds"] = options_.duration.count();
  spec["renewTime"] = now;
  return lease;
}

void LeaseElector::release() {
  const bool leads = is_leader();
  set_leads_until(0);
  announce();
  if (!leads || !lease_ || !is_mine()) return;
  json lease = claim(seams_.clock->realtime_ns());
  lease["spec"]["holderIdentity"] = "";
  lease["spec"]["leaseDurationSeconds"] = 1;
  const auto released = writer_.send(WriteMethod::put, collection_ + "/" + options_.name, lease,
                                     BodyType::json, release_stop_.get_token());
  if (!released) note_failure(released.error());
  const std::lock_guard lock(mutex_);
  if (released) holder_.clear();
}

void LeaseElector::note_failure(const Error& error) {
  const bool lost_race = error.code == kHttpConflict;
  {
    const std::lock_guard lock(mutex_);
    if (lost_race) {
      ++stats_.conflicts;
      return;
    }
    ++stats_.failures;
    stats_.last_error = error.message();
  }
  log_limited(log_limiter_, LogLevel::warn, options_.name, error.message());
}

void LeaseElector::set_leads_until(std::uint64_t until_ns) {
  const std::lock_guard lock(mutex_);
  leads_until_ns_ = until_ns;
}

void LeaseElector::announce() {
  const bool leads = is_leader();
  if (leads == announced_) return;
  announced_ = leads;
  if (leads) {
    const std::lock_guard lock(mutex_);
    ++stats_.terms;
  }
  if (on_change_) on_change_(leads);
}

std::chrono::nanoseconds LeaseElector::time_to_next(bool succeeded) {
  if (!succeeded) return backoff_.next();
  backoff_.reset();
  const auto scaled = [](std::chrono::nanoseconds time, double factor) {
    return std::chrono::nanoseconds(
        static_cast<std::int64_t>(static_cast<double>(time.count()) * factor));
  };
  if (is_leader()) return options_.renew_period;
  const auto look = scaled(options_.look_period, 0.75 + 0.5 * seams_.random());
  // Sooner where the lease may be over before, but not all agents at once.
  const std::chrono::nanoseconds seen(seams_.clock->boottime_ns() - renewal_ns_);
  const auto to_end = options_.duration - seen + scaled(std::chrono::seconds(1), seams_.random());
  return std::clamp<std::chrono::nanoseconds>(to_end, std::chrono::milliseconds(100), look);
}

}  // namespace ingero::k8s
