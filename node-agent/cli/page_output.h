// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

#include "model/page.h"

namespace ingero::cli {

/// The page for a terminal of `width` columns (0: any number).
std::string render_page(const model::Page& page, std::size_t width, bool colour);

/// The page as one HTML file that needs nothing else and runs no script.
std::string render_page_html(const model::Page& page);

}  // namespace ingero::cli
