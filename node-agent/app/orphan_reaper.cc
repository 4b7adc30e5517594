// SPDX-License-Identifier: Apache-2.0
#include "app/orphan_reaper.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <system_error>

#include "k8s/backoff.h"
#include "k8s/informer.h"

namespace ingero::app {

Result<std::unique_ptr<OrphanReaper>> OrphanReaper::start(k8s::Transport& transport,
                                                          k8s::Writer& writer,
                                                          OrphanReaperOptions options) {
  auto reaper = std::unique_ptr<OrphanReaper>(new OrphanReaper(transport, writer, options));
  try {
    reaper->thread_ = std::thread([self = reaper.get()] { self->run(); });
  } catch (const std::system_error& error) {
    return fail(Error{"start orphan reaper", "", error.what(), "", error.code().value()});
  }
  return reaper;
}

OrphanReaper::OrphanReaper(k8s::Transport& transport, k8s::Writer& writer,
                           OrphanReaperOptions options)
    : transport_(transport), writer_(writer), options_(options) {}

OrphanReaper::~OrphanReaper() {
  stop_.request_stop();
  if (thread_.joinable()) thread_.join();
}

void OrphanReaper::set_reports(const std::set<std::string>& names) {
  const auto first = Time::now() + options_.grace;
  const std::lock_guard lock(mutex_);
  std::erase_if(due_, [&](const auto& entry) { return !names.contains(entry.first); });
  for (const std::string& name : names) due_.emplace(name, first);
}

/// The report that waits longest for a look.
std::optional<std::string> OrphanReaper::take_due() {
  const std::lock_guard lock(mutex_);
  const auto next = std::min_element(
      due_.begin(), due_.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  if (next == due_.end() || next->second > Time::now()) return std::nullopt;
  next->second = Time::now() + options_.interval;
  return next->first;
}

void OrphanReaper::run() {
  const std::stop_token stop = stop_.get_token();
  while (!stop.stop_requested()) {
    if (const auto name = take_due()) look_at(*name);
    k8s::wait_for(options_.pace, stop);
  }
}

void OrphanReaper::look_at(const std::string& name) {
  const auto node = transport_.get("/api/v1/nodes/" + k8s::encode_query(name), stop_.get_token());
  if (stop_.stop_requested()) return;
  if (node) return;
  if (node.error().code != k8s::kHttpNotFound) {
    log_limited(log_limiter_, LogLevel::warn, "look", node.error().message());
    return;
  }
  const auto removed = writer_.send(
      k8s::WriteMethod::remove, "/apis/ingero.io/v1alpha1/gputracenodes/" + k8s::encode_query(name),
      {{"apiVersion", "v1"}, {"kind", "DeleteOptions"}}, k8s::BodyType::json, stop_.get_token());
  if (stop_.stop_requested()) return;
  if (removed) spdlog::info("the report of {} is deleted: there is no such node", name);
  else log_limited(log_limiter_, LogLevel::warn, "delete", removed.error().message());
}

}  // namespace ingero::app
