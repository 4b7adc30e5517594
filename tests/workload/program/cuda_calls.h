// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>

#include "program/session.h"
#include "stubs/cuda_abi.h"

namespace ingero::workload {

// Names of the values of cudaMemcpyKind, as the `direction` label has them.
constexpr std::array<const char*, 5> kDirections = {"h2h", "h2d", "d2h", "d2d", "default"};

// Every copy function of libcudart, each with its twin and, where it takes a kind, in all five
// directions; the sizes are those that README.md lists.
void runtime_copies(Session& session);
// The same for libcuda.
void driver_copies(Session& session);
// Waits for the session's stream, through both names.
void stream_waits(Session& session);
// A plain asynchronous copy of `bytes`, direction by number of cudaMemcpyKind.
int copy_async(Session& session, std::size_t bytes, int kind);

}  // namespace ingero::workload
