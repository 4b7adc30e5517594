// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

#include "model/identity.h"

namespace ingero::cli {

/// Columns that a container's name gets: what container tools show of an id.
inline constexpr std::size_t kContainerWidth = 12;

/// Container id, or cgroup path of what is no container; "" when neither is known.
using ContainerLabel = std::function<std::string(model::CgroupId)>;

/// At most `width` characters: the start of a container id (12 or more hex digits), else the end of
/// the path's last part, behind an ellipsis. "-" for an empty label. Escape the label first.
std::string short_container(std::string_view label, std::size_t width);

}  // namespace ingero::cli
