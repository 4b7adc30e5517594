// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "model/functions.h"
#include "model/snapshot.h"

namespace ingero::cli {

/// What a series counts, in words of the table of functions.
struct CallName {
  std::string_view operation;  ///< label of the API; "unknown function" for an id that no row has
  std::string_view direction;  ///< h2d ...; "" for anything but copies
  api_source source = API_SOURCE_NONE;
};

CallName call_name(const model::CallSeries& series);

/// The library that serves a source, as users call it: nccl, cudart, cuda; "-" for none.
std::string_view source_library(api_source source);

/// The operation that the exported symbol belongs to: "cudaMemcpy" for "cudaMemcpy_ptds". A symbol
/// that is in no row is its own operation (the view that was given).
std::string_view operation_of_symbol(std::string_view symbol);

}  // namespace ingero::cli
