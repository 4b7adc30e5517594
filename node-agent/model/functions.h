// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "bpf/api_functions.h"

namespace ingero::model {

/// One traced API function: a row of bpf/api_functions.h.
struct ApiFunction {
  std::uint16_t id;         ///< never reused; recordings hold it
  std::string_view symbol;  ///< exact exported name, such as "cudaMemcpyAsync_ptsz"
  std::string_view
      operation;  ///< label shared by the variants of one API, such as "cudaMemcpyAsync"
  api_family family;
  api_source source;
  std::uint64_t cookie;  ///< shape | id: what the BPF program is given at the attach
};

/// The fields of a cookie. Positions are 1-based argument numbers; 0 = the function has none.
struct ApiShape {
  std::uint16_t id = 0;
  std::uint8_t bytes = 0;
  std::uint8_t factor = 0;
  std::uint8_t type = 0;
  std::uint8_t object = 0;
  std::uint8_t stream = 0;
  std::uint8_t peer = 0;
  std::uint8_t redop = 0;
  std::optional<copy_direction> direction;  ///< set when the function itself says it
  bool per_rank = false;                    ///< the count is that of one rank
  api_layout layout = API_LAYOUT_ARGS;
  bool operator==(const ApiShape&) const = default;
};

ApiShape decode_cookie(std::uint64_t cookie);

/// All rows, in the order of the table.
std::span<const ApiFunction> api_functions();

/// The row with this id in constant time; nullptr for an id that no row has.
const ApiFunction* find_api_function(std::uint16_t id);

/// The kind of call as JSON and SQL name it: ALL_REDUCE, COMM_INIT_RANK, MEMCPY_2D, ...
std::string_view op_name(const ApiFunction& function);

/// The `source` label: cuda, driver, nccl; none for API_SOURCE_NONE.
std::string_view to_string(api_source source);

/// The `direction` label: h2h, h2d, d2h, d2d, default, unknown (also for values out of range).
std::string_view direction_label(std::uint32_t direction);

/// cudaMemcpyKind as the header spells it without "cuda"; MemcpyUnknown is ours.
std::string_view memcpy_kind_name(std::uint32_t direction);

/// int8 ... float8e5m2; "unknown" for values out of range.
std::string_view nccl_datatype_name(std::uint32_t datatype);

/// Bytes of one element; 0 for a datatype that is not known.
std::uint32_t nccl_datatype_size(std::uint32_t datatype);

/// sum, prod, max, min, avg; "custom" for every user operator (its number is mangled per
/// communicator).
std::string_view nccl_redop_name(std::uint32_t redop);

/// ncclSuccess ... ncclTimeout; the number as text when it is not known.
std::string nccl_result_name(std::int32_t result);

/// cudaErrorMemoryAllocation ...; the number as text when it is not known. CUresult has the same
/// numbers, so driver calls are named by this too.
std::string cuda_error_name(std::int32_t error);

/// nccl_result_name or cuda_error_name, by the source.
std::string result_name(api_source source, std::int32_t result);

/// False for success and for what is no failure: ncclInProgress, cudaErrorNotReady.
bool is_failure(api_source source, std::int32_t result);

}  // namespace ingero::model
