// SPDX-License-Identifier: Apache-2.0
#include "k8s/object_applier.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "base/log.h"
#include "k8s/transport.h"

namespace ingero::k8s {

namespace {
constexpr std::chrono::seconds kLogInterval{60};
}  // namespace

Result<std::unique_ptr<ObjectApplier>> ObjectApplier::start(Writer& writer,
                                                            ObjectApplierOptions options) {
  auto applier = std::unique_ptr<ObjectApplier>(new ObjectApplier(writer, std::move(options)));
  try {
    applier->thread_ = std::thread([self = applier.get()] { self->run(); });
  } catch (const std::system_error& error) {
    return fail(Error{"start object applier", "", error.what(), "", error.code().value()});
  }
  return applier;
}

ObjectApplier::ObjectApplier(Writer& writer, ObjectApplierOptions options)
    : writer_(writer), options_(std::move(options)) {}

ObjectApplier::~ObjectApplier() { stop(); }

void ObjectApplier::stop() {
  stop_.request_stop();
  if (thread_.joinable()) thread_.join();
}

ObjectApplierStats ObjectApplier::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

void ObjectApplier::apply(const std::string& path, nlohmann::json object) {
  const std::lock_guard lock(mutex_);
  Entry& entry = entries_[path];
  if (entry.generation != 0 && entry.wanted == object) return;
  entry.wanted = std::move(object);
  entry.generation = ++last_generation_;
  changed_ = true;
  wake_.notify_all();
}

void ObjectApplier::forget(const std::string& path) {
  const std::lock_guard lock(mutex_);
  entries_.erase(path);
}

void ObjectApplier::clear() {
  const std::lock_guard lock(mutex_);
  entries_.clear();
}

/// Of those that are to be written, the one that is due first.
ObjectApplier::Entries::iterator ObjectApplier::find_next() {
  auto next = entries_.end();
  for (auto at = entries_.begin(); at != entries_.end(); ++at) {
    if (at->second.written == at->second.generation) continue;
    if (next == entries_.end() || at->second.due < next->second.due) next = at;
  }
  return next;
}

void ObjectApplier::run() {
  const std::stop_token stop = stop_.get_token();
  RateLimiter log_limiter(kLogInterval);
  std::unique_lock lock(mutex_);
  while (!stop.stop_requested()) {
    changed_ = false;
    const auto next = find_next();
    if (next == entries_.end()) {
      wake_.wait(lock, stop, [this] { return changed_; });
      continue;
    }
    if (const auto due = next->second.due; due > Time::now()) {
      wake_.wait_until(lock, stop, due, [this] { return changed_; });
      continue;
    }
    const AppliedObject object{next->first, next->second.wanted};
    const std::uint64_t generation = next->second.generation;
    const bool is_first = next->second.written == 0;
    lock.unlock();
    const Status written = write(object, generation, is_first);
    if (stop.stop_requested()) return;
    if (!written) log_limited(log_limiter, LogLevel::warn, object.path, written.error().message());
    lock.lock();
    settle(object.path, generation, written);
  }
}

Status ObjectApplier::send(const AppliedObject& object) {
  auto sent = writer_.send(WriteMethod::patch, object.path, object.object, BodyType::apply,
                           stop_.get_token());
  if (!sent) return fail(sent.error());
  return {};
}

Result<bool> ObjectApplier::make_prerequisite(const std::string& path) {
  if (!options_.prerequisite) return false;
  const auto needed = options_.prerequisite(path, stop_.get_token());
  if (!needed) return fail(needed.error());
  if (!*needed) return false;
  if (auto made = send(**needed); !made) return fail(made.error());
  return true;
}

Status ObjectApplier::write(const AppliedObject& object, std::uint64_t generation, bool is_first) {
  if (is_first) {
    if (auto made = make_prerequisite(object.path); !made) return fail(made.error());
  }
  auto written = send(object);
  if (written || written.error().code != kHttpNotFound || !options_.prerequisite) return written;
  const auto made = make_prerequisite(object.path);
  if (!made) return fail(made.error());
  if (*made) return send(object);
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(object.path);
  // Unless it was told anew meanwhile.
  if (found != entries_.end() && found->second.generation == generation) entries_.erase(found);
  return written;
}

void ObjectApplier::settle(const std::string& path, std::uint64_t generation,
                           const Status& written) {
  if (written) {
    ++stats_.writes;
    stats_.last_error.clear();
  } else {
    ++stats_.failures;
    stats_.last_error = written.error().message();
  }
  const auto found = entries_.find(path);
  if (found == entries_.end()) return;  // forgotten meanwhile
  Entry& entry = found->second;
  std::chrono::nanoseconds pause = options_.interval;
  if (written) {
    // A newer state, or one that was told after a forget(), has another generation.
    entry.written = generation;
    entry.backoff.reset();
  } else {
    if (!entry.backoff) entry.backoff.emplace(options_.backoff);
    pause = std::max(pause, entry.backoff->next());
  }
  entry.due = Time::now() + pause;
}

}  // namespace ingero::k8s
