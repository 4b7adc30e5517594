// SPDX-License-Identifier: Apache-2.0
#include "cli/call_name.h"

namespace ingero::cli {

CallName call_name(const model::CallSeries& series) {
  const model::ApiFunction* function = model::find_api_function(series.function);
  if (function == nullptr) return CallName{"unknown function", "", API_SOURCE_NONE};
  const bool copy = function->family == API_CUDA_COPY;
  return CallName{function->operation, copy ? model::direction_label(series.direction) : "",
                  function->source};
}

std::string_view source_library(api_source source) {
  switch (source) {
    case API_SOURCE_NONE: return "-";
    case API_SOURCE_CUDA: return "cudart";
    case API_SOURCE_DRIVER: return "cuda";
    case API_SOURCE_NCCL: return "nccl";
  }
  return "-";
}

std::string_view operation_of_symbol(std::string_view symbol) {
  for (const model::ApiFunction& function : model::api_functions()) {
    if (function.symbol == symbol) return function.operation;
  }
  return symbol;
}

}  // namespace ingero::cli
