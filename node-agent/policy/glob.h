// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ingero::policy {

/// `*` stands for any characters, also none, `?` for one byte; all else for itself. At most
/// pattern.size() * text.size() steps, whatever the pattern.
bool glob_matches(std::string_view pattern, std::string_view text);

bool any_glob_matches(const std::vector<std::string>& patterns, std::string_view text);

}  // namespace ingero::policy
