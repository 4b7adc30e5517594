// SPDX-License-Identifier: Apache-2.0
#include "export/operations.h"

#include <algorithm>
#include <map>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "model/functions.h"

namespace ingero::exporting {
namespace {

struct Index {
  std::vector<Operation> operations;
  std::unordered_map<std::uint16_t, OperationIndex> by_function;
  std::unordered_set<std::string_view> nccl_symbols;
};

Index make_index() {
  Index index;
  std::map<std::pair<api_source, std::string_view>, OperationIndex> known;
  for (const model::ApiFunction& function : model::api_functions()) {
    const auto next = static_cast<OperationIndex>(index.operations.size());
    const auto [place, added] = known.try_emplace({function.source, function.operation}, next);
    if (added) {
      index.operations.push_back({function.operation, model::to_string(function.source),
                                  function.source, function.family == API_NCCL_COLLECTIVE,
                                  function.family == API_CUDA_COPY,
                                  function.family == API_CUDA_STREAM_SYNC});
    }
    index.by_function.emplace(function.id, place->second);
    if (function.source == API_SOURCE_NCCL) index.nccl_symbols.insert(function.symbol);
  }
  return index;
}

const Index& index() {
  static const Index made = make_index();
  return made;
}

}  // namespace

std::span<const Operation> operations() { return index().operations; }

std::optional<OperationIndex> operation_of(std::uint16_t function) {
  const auto found = index().by_function.find(function);
  if (found == index().by_function.end()) return std::nullopt;
  return found->second;
}

bool is_nccl_symbol(std::string_view symbol) { return index().nccl_symbols.contains(symbol); }

}  // namespace ingero::exporting
