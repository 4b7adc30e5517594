// SPDX-License-Identifier: Apache-2.0
#include "k8s/informer.h"

#include <exception>
#include <system_error>
#include <utility>

#include "base/text.h"

namespace ingero::k8s {

namespace {

constexpr std::chrono::seconds kLogInterval{60};
/// On top of a watch's own timeout, for a server that does not keep to it.
constexpr std::chrono::seconds kWatchGrace{30};

/// The server has not seen that version: etcd was restored, or a replica of the API server lags.
bool is_version_unknown(const Error& error) {
  return error.cause.find("Too large resource version") != std::string::npos;
}

/// A 4xx that the same question will get again, other than one that rights or time may change.
bool is_lasting_refusal(int code) {
  return code >= kHttpBadRequest && code < 500 && code != kHttpUnauthorized &&
         code != kHttpForbidden && code != kHttpTooManyRequests;
}

Error malformed(Error error) {
  error.hint = "the objects are listed again";
  return error;
}

Error error_of_event(const nlohmann::json& status) {
  const auto code = status.find("code");
  const int number = code != status.end() && code->is_number_integer() ? code->get<int>() : 0;
  Error error{"watch", "", "", "", number};
  error.cause = fmt::format("the server ended it: {} {}", number,
                            truncate(escape_terminal(text_at(status, {"message"})), 512));
  return error;
}

}  // namespace

std::string encode_query(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       std::string_view("-._~").find(c) != std::string_view::npos;
    if (plain) out += c;
    else out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return out;
}

Result<std::unique_ptr<Informer>> Informer::start(Transport& transport, InformerOptions options,
                                                  InformerHandlers handlers, InformerSeams seams) {
  const std::string path = options.path;
  if (!handlers.on_snapshot || !handlers.on_change)
    return fail(Error{"start informer", path, "it has no handlers", "", 0});
  if (!seams.wait) seams.wait = wait_for;
  auto informer = std::unique_ptr<Informer>(
      new Informer(transport, std::move(options), std::move(handlers), std::move(seams)));
  try {
    informer->thread_ = std::thread([self = informer.get()] { self->run(); });
  } catch (const std::system_error& error) {
    return fail(Error{"start informer", path, error.what(), "", error.code().value()});
  }
  return informer;
}

Informer::Informer(Transport& transport, InformerOptions options, InformerHandlers handlers,
                   InformerSeams seams)
    : transport_(transport),
      options_(std::move(options)),
      handlers_(std::move(handlers)),
      seams_(std::move(seams)),
      backoff_(options_.backoff, seams_.random),
      log_limiter_(kLogInterval, 16, *seams_.clock) {}

Informer::~Informer() { stop(); }

void Informer::stop() {
  stop_.request_stop();
  if (thread_.joinable()) thread_.join();
}

InformerStats Informer::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

template <typename Change>
void Informer::update_stats(Change&& change) {
  const std::lock_guard lock(mutex_);
  change(stats_);
}

void Informer::run() {
  while (!stop_.stop_requested()) {
    bool at_once = false;
    try {
      at_once = attempt();
    } catch (const std::exception& error) {
      must_list_ = true;  // the handler may have missed a change
      note_failure(Error{"handle objects", options_.path, escape_terminal(error.what()), "", 0});
    }
    if (stop_.stop_requested()) return;
    if (at_once) backoff_.reset();
    else seams_.wait(backoff_.next(), stop_.get_token());
  }
}

bool Informer::attempt() {
  if (must_list_) {
    if (auto listed = list(); !listed) {
      if (stop_.stop_requested()) return false;
      note_failure(listed.error());
      learn_from(listed.error());
      // Ask for the newest: this version, or the one of the pages, is no longer kept.
      if (listed.error().code == kHttpGone) version_.clear();
      return false;
    }
  }
  const auto begin_ns = seams_.clock->monotonic_ns();
  auto watched = watch();
  if (stop_.stop_requested()) return false;
  if (!watched) {
    note_failure(watched.error());
    learn_from(watched.error());
  }
  // A watch that ends soon, even without an error, must not be repeated without pause.
  const std::chrono::nanoseconds lasted(seams_.clock->monotonic_ns() - begin_ns);
  return lasted >= options_.healthy_watch;
}

Status Informer::list() {
  std::vector<nlohmann::json> objects;
  std::string next;
  std::string version;
  do {
    auto text = transport_.get(list_path(next), stop_.get_token());
    if (!text) return fail(text.error());
    auto page = parse_list_page(*text, options_.dropped_fields);
    if (!page) {
      update_stats([](InformerStats& stats) { ++stats.malformed; });
      return fail(malformed(page.error()));
    }
    for (auto& object : page->objects) objects.push_back(std::move(object));
    version = std::move(page->resource_version);
    next = std::move(page->next);
  } while (!next.empty());

  handlers_.on_snapshot(std::move(objects));
  version_ = std::move(version);
  must_list_ = false;
  update_stats([](InformerStats& stats) {
    ++stats.lists;
    stats.synced = true;
    stats.last_error.clear();
  });
  return {};
}

Status Informer::watch() {
  const std::chrono::seconds timeout(
      options_.watch_timeout.count() +
      static_cast<std::chrono::seconds::rep>(static_cast<double>(options_.watch_timeout.count()) *
                                             seams_.random()));
  update_stats([](InformerStats& stats) { ++stats.watches; });
  Status handled;
  std::exception_ptr thrown;
  // What a handler throws must not pass through the transport.
  const auto on_line = [&](std::string_view line) {
    if (stop_.stop_requested()) return false;
    try {
      handled = handle_line(line);
    } catch (...) {
      thrown = std::current_exception();
    }
    return handled.has_value() && !thrown;
  };
  auto watched =
      transport_.watch(watch_path(timeout), timeout + kWatchGrace, on_line, stop_.get_token());
  if (thrown) std::rethrow_exception(thrown);
  if (!handled) return handled;
  return watched;
}

Status Informer::handle_line(std::string_view line) {
  auto event = parse_watch_line(line, options_.dropped_fields);
  if (!event) {
    // The stream is no longer understood, so a change may have been missed.
    must_list_ = true;
    update_stats([](InformerStats& stats) { ++stats.malformed; });
    return fail(malformed(event.error()));
  }
  const auto hand_on = [&](ChangeType type) {
    handlers_.on_change(type, std::move(event->object));
    update_stats([](InformerStats& stats) { ++stats.changes; });
  };
  switch (event->type) {
    case WatchEventType::added: hand_on(ChangeType::added); break;
    case WatchEventType::modified: hand_on(ChangeType::modified); break;
    case WatchEventType::deleted: hand_on(ChangeType::deleted); break;
    case WatchEventType::bookmark:
      update_stats([](InformerStats& stats) { ++stats.bookmarks; });
      break;
    case WatchEventType::error: {
      Error error = error_of_event(event->object);
      if (error.code != kHttpTooManyRequests) must_list_ = true;
      return fail(std::move(error));
    }
  }
  version_ = std::move(event->resource_version);
  update_stats([](InformerStats& stats) { stats.last_error.clear(); });
  return {};
}

void Informer::learn_from(const Error& error) {
  if (is_version_unknown(error)) version_.clear();
  if (is_version_unknown(error) || is_lasting_refusal(error.code)) must_list_ = true;
}

void Informer::note_failure(const Error& error) {
  Error named = error;
  if (named.object.empty()) named.object = options_.path;
  update_stats([&](InformerStats& stats) {
    ++stats.failures;
    if (named.code == kHttpGone) ++stats.expired;
    stats.last_error = named.message();
  });
  log_limited(log_limiter_, LogLevel::warn, options_.path, named.message());
}

std::string Informer::list_path(const std::string& next) const {
  std::string path = fmt::format("{}?limit={}", options_.path, options_.page_size);
  if (!options_.field_selector.empty())
    path += "&fieldSelector=" + encode_query(options_.field_selector);
  if (!options_.label_selector.empty())
    path += "&labelSelector=" + encode_query(options_.label_selector);
  // A continue token holds its own version.
  if (!next.empty()) return path + "&continue=" + encode_query(next);
  // Without the match, a limit makes the server look for exactly this version.
  if (!version_.empty())
    path += fmt::format("&resourceVersion={}&resourceVersionMatch=NotOlderThan", version_);
  return path;
}

std::string Informer::watch_path(std::chrono::seconds timeout) const {
  std::string path =
      fmt::format("{}?watch=1&allowWatchBookmarks=true&resourceVersion={}&timeoutSeconds={}",
                  options_.path, encode_query(version_), timeout.count());
  if (!options_.field_selector.empty())
    path += "&fieldSelector=" + encode_query(options_.field_selector);
  if (!options_.label_selector.empty())
    path += "&labelSelector=" + encode_query(options_.label_selector);
  return path;
}

}  // namespace ingero::k8s
