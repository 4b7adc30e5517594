// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "bpf/api_functions.h"

namespace ingero::exporting {

/// Index into operations().
using OperationIndex = std::uint16_t;

/// What one `operation` or `op_type` label stands for: the variants of an API function share it.
struct Operation {
  std::string_view label;   ///< such as "cudaMemcpyAsync", "ncclAllReduce"
  std::string_view source;  ///< cuda, driver, nccl
  api_source api = API_SOURCE_NONE;
  bool collective = false;   ///< counted by gpu_nccl_collective_*
  bool copy = false;         ///< counted by gpu_memcpy_*
  bool synchronize = false;  ///< counted by gpu_cuda_sync_wait_seconds
};

/// The distinct operations of bpf/api_functions.h, in its order.
std::span<const Operation> operations();

/// The operation of a function id; nullopt for an id that is not known.
std::optional<OperationIndex> operation_of(std::uint16_t function);

/// True for exported names of NCCL functions.
bool is_nccl_symbol(std::string_view symbol);

}  // namespace ingero::exporting
