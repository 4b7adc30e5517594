// SPDX-License-Identifier: Apache-2.0
#include "k8s/event_recorder.h"

#include <system_error>
#include <utility>

#include "base/text.h"
#include "base/timestamp.h"
#include "base/utf8.h"
#include "k8s/transport.h"

namespace ingero::k8s {

namespace {

using nlohmann::json;

constexpr std::size_t kMaxMessageBytes = 1024;
constexpr std::size_t kMaxReasonBytes = 128;
constexpr std::size_t kMaxRepeatKeys = 1024;
constexpr std::chrono::seconds kLogInterval{60};
// Where the API server wants the events of objects without a namespace.
const char kClusterNamespace[] = "default";

const char* type_name(EventType type) {
  switch (type) {
    case EventType::normal: return "Normal";
    case EventType::warning: return "Warning";
  }
  return "Warning";
}

/// The same event may succeed later. Rights may be given at any time, but the queue must not wait
/// for that.
bool may_succeed_later(int code) {
  return code == 0 || code == kHttpUnauthorized || code == kHttpTooManyRequests || code >= 500;
}

std::string event_namespace(const ObjectReference& object) {
  return object.k8s_namespace.empty() ? kClusterNamespace : object.k8s_namespace;
}

}  // namespace

Result<std::unique_ptr<EventRecorder>> EventRecorder::start(Writer& writer,
                                                            EventRecorderOptions options,
                                                            const ClockSource& clock) {
  auto recorder =
      std::unique_ptr<EventRecorder>(new EventRecorder(writer, std::move(options), clock));
  try {
    recorder->thread_ = std::thread([self = recorder.get()] { self->run(); });
  } catch (const std::system_error& error) {
    return fail(Error{"start event recorder", "", error.what(), "", error.code().value()});
  }
  return recorder;
}

EventRecorder::EventRecorder(Writer& writer, EventRecorderOptions options, const ClockSource& clock)
    : writer_(writer),
      options_(std::move(options)),
      clock_(clock),
      repeats_(options_.repeat_interval, kMaxRepeatKeys, clock) {}

EventRecorder::~EventRecorder() { stop(); }

void EventRecorder::stop() {
  stop_.request_stop();
  if (thread_.joinable()) thread_.join();
}

EventStats EventRecorder::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

void EventRecorder::record(const Event& event) {
  std::string key;
  for (const std::string* part :
       {&event.object.kind, &event.object.k8s_namespace, &event.object.name, &event.object.uid,
        &event.reason, &event.message})
    key.append(*part).push_back('\0');
  const std::lock_guard lock(mutex_);
  // Before the limiter is asked, which would count it as told.
  if (queue_.size() >= options_.max_queue) {
    ++stats_.dropped;
    return;
  }
  if (!repeats_.admit(key)) {
    ++stats_.repeated;
    return;
  }
  queue_.push_back(make_object(event));
  wake_.notify_all();
}

json EventRecorder::make_object(const Event& event) const {
  const std::string now = format_timestamp(clock_.realtime_ns());
  json object{{"apiVersion", event.object.api_version},
              {"kind", event.object.kind},
              {"name", event.object.name}};
  if (!event.object.k8s_namespace.empty()) object["namespace"] = event.object.k8s_namespace;
  if (!event.object.uid.empty()) object["uid"] = event.object.uid;
  return {
      {"apiVersion", "v1"},
      {"kind", "Event"},
      {"metadata", {{"generateName", "ingero-"}, {"namespace", event_namespace(event.object)}}},
      {"involvedObject", std::move(object)},
      {"reason", cut_utf8(escape_terminal(event.reason), kMaxReasonBytes)},
      {"message", cut_utf8(escape_terminal(event.message), kMaxMessageBytes)},
      {"type", type_name(event.type)},
      {"source", {{"component", "ingero"}, {"host", options_.node}}},
      {"reportingComponent", "ingero"},
      {"reportingInstance", options_.instance},
      {"firstTimestamp", now},
      {"lastTimestamp", now},
      {"count", 1},
  };
}

void EventRecorder::run() {
  const std::stop_token stop = stop_.get_token();
  RateLimiter log_limiter(kLogInterval, 16, clock_);
  Backoff backoff(options_.backoff);
  std::unique_lock lock(mutex_);
  while (wake_.wait(lock, stop, [this] { return !queue_.empty(); })) {
    if (stop.stop_requested()) return;
    const json event = queue_.front();
    lock.unlock();
    const std::string path =
        fmt::format("/api/v1/namespaces/{}/events",
                    event["metadata"]["namespace"].get_ref<const std::string&>());
    const auto sent = writer_.send(WriteMethod::post, path, event, BodyType::json, stop);
    if (stop.stop_requested()) return;
    if (!sent) log_limited(log_limiter, LogLevel::warn, path, sent.error().message());
    const bool again = !sent && may_succeed_later(sent.error().code);
    if (again) wait_for(backoff.next(), stop);
    else backoff.reset();
    lock.lock();
    if (!again) queue_.pop_front();
    if (sent) ++stats_.sent;
    else if (!again) ++stats_.refused;
    stats_.last_error = sent ? "" : sent.error().message();
  }
}

}  // namespace ingero::k8s
