// SPDX-License-Identifier: Apache-2.0
#include "app/config_map.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <nlohmann/json.hpp>
#include <stop_token>
#include <thread>
#include <utility>

#include "k8s/api_object.h"
#include "k8s/backoff.h"
#include "k8s/informer.h"

namespace ingero::app {
namespace {

constexpr const char* kConfigKey = "config.yaml";
constexpr int kHttpServerErrors = 500;

/// Whether the next attempt may go better: the API server is away, busy or not up yet.
bool may_pass(const Error& error) {
  return error.code == 0 || error.code == k8s::kHttpTooManyRequests ||
         error.code >= kHttpServerErrors;
}

Result<ConfigMapState> parse_only_one(const std::string& text) {
  auto page = k8s::parse_list_page(text, {"binaryData"});
  if (!page) return fail(page.error());
  if (page->objects.empty()) return ConfigMapState{};
  return parse_config_map(page->objects.front());
}

}  // namespace

std::string to_string(const ConfigMapName& where) { return where.k8s_namespace + "/" + where.name; }

std::string config_maps_path(const ConfigMapName& where) {
  return fmt::format("/api/v1/namespaces/{}/configmaps", where.k8s_namespace);
}

Result<ConfigMapState> parse_config_map(const nlohmann::json& object) {
  ConfigMapState state;
  state.exists = true;
  state.uid = k8s::text_at(object, {"metadata", "uid"});
  state.resource_version = k8s::text_at(object, {"metadata", "resourceVersion"});
  const auto data = object.find("data");
  if (data == object.end() || !data->is_object()) return state;
  const auto text = data->find(kConfigKey);
  if (text == data->end() || !text->is_string()) return state;
  state.has_key = true;
  state.yaml = text->get<std::string>();
  return state;
}

Result<ConfigMapState> fetch_config_map(k8s::Transport& transport, const ConfigMapName& where,
                                        std::chrono::nanoseconds patience) {
  // A list, as the watch's: the agent's role has the verb. Without a resourceVersion it is the newest.
  const std::string path = config_maps_path(where) +
                           "?fieldSelector=" + k8s::encode_query("metadata.name=" + where.name);
  std::stop_source late;
  const std::jthread timer([late, patience](const std::stop_token& done) mutable {
    k8s::wait_for(patience, done);
    late.request_stop();
  });
  k8s::Backoff backoff;
  Error last{"GET", path, "no answer within the time limit", ""};
  while (!late.stop_requested()) {
    const auto text = transport.get(path, late.get_token());
    if (text) return parse_only_one(*text);
    if (!may_pass(text.error())) return fail(text.error());
    // "Stopped" tells less than what came before it.
    if (!late.stop_requested()) last = text.error();
    k8s::wait_for(backoff.next(), late.get_token());
  }
  return fail(std::move(last));
}

void take_config_map(LiveConfig& settings, const ConfigMapName& where,
                     const ConfigMapState& state) {
  const std::string source = to_string(where);
  if (!state.exists) {
    settings.refuse(source, "ConfigMap " + source + " does not exist");
  } else if (!state.has_key) {
    settings.refuse(source, "ConfigMap " + source + " has no key config.yaml");
  } else {
    static_cast<void>(settings.take(state.yaml, source, state.resource_version));
  }
}

void begin_with_config_map(LiveConfig& settings, k8s::Transport& transport,
                           const ConfigMapName& where, std::chrono::nanoseconds patience) {
  const auto state = fetch_config_map(transport, where, patience);
  if (state) return take_config_map(settings, where, *state);
  spdlog::warn("starts without the settings of ConfigMap {}: {}", to_string(where),
               state.error().message());
}

}  // namespace ingero::app
