// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "app/live_config.h"
#include "k8s/transport.h"

namespace ingero::app {

/// The ConfigMap that holds the settings.
struct ConfigMapState {
  bool exists = false;
  std::string yaml;  ///< of the key config.yaml
  bool has_key = false;
  std::string uid;
  std::string resource_version;
  bool operator==(const ConfigMapState&) const = default;
};

/// Where it is.
struct ConfigMapName {
  std::string k8s_namespace;
  std::string name;
};

/// "namespace/name", for messages and as the source of settings.
std::string to_string(const ConfigMapName& where);

/// Reads the object as the API server tells it.
Result<ConfigMapState> parse_config_map(const nlohmann::json& object);

/// Path of all ConfigMaps of its namespace.
std::string config_maps_path(const ConfigMapName& where);

/// Asks for the newest state, anew where there is no answer or a passing trouble, until `patience` is
/// over. An error: refused, or no answer by then; about a second later at the latest.
Result<ConfigMapState> fetch_config_map(k8s::Transport& transport, const ConfigMapName& where,
                                        std::chrono::nanoseconds patience);

/// Gives the state to the settings. They stay as they are where it has none that are good.
void take_config_map(LiveConfig& settings, const ConfigMapName& where, const ConfigMapState& state);

/// Before the agent is made: settings that cannot change while it runs hold from the start. Where the
/// ConfigMap cannot be read, the log says why and the settings stay as they are.
void begin_with_config_map(LiveConfig& settings, k8s::Transport& transport,
                           const ConfigMapName& where,
                           std::chrono::nanoseconds patience = std::chrono::seconds(5));

}  // namespace ingero::app
