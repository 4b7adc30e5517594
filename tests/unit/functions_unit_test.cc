// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <set>

#include "model/functions.h"

namespace ingero::model {
namespace {

const ApiFunction& by_symbol(std::string_view symbol) {
  for (const ApiFunction& function : api_functions()) {
    if (function.symbol == symbol) return function;
  }
  ADD_FAILURE() << "no row for " << symbol;
  return api_functions().front();
}

TEST(Functions, IdsAndSymbolsAreUnique) {
  std::set<std::uint16_t> ids;
  std::set<std::string_view> symbols;
  for (const ApiFunction& function : api_functions()) {
    EXPECT_TRUE(ids.insert(function.id).second) << function.symbol;
    EXPECT_TRUE(symbols.insert(function.symbol).second) << function.symbol;
    EXPECT_FALSE(function.symbol.starts_with("pnccl")) << "never wanted by itself";
  }
  EXPECT_GT(ids.size(), 90U);
}

TEST(Functions, EveryRowIsFoundByItsId) {
  for (const ApiFunction& function : api_functions()) {
    EXPECT_EQ(find_api_function(function.id), &function);
  }
}

TEST(Functions, IdsWithoutRowGiveNull) {
  EXPECT_EQ(find_api_function(0), nullptr);
  EXPECT_EQ(find_api_function(1023), nullptr);
  EXPECT_EQ(find_api_function(1024), nullptr);
  EXPECT_EQ(find_api_function(65535), nullptr);
}

TEST(Functions, CookieHoldsTheId) {
  for (const ApiFunction& function : api_functions()) {
    EXPECT_EQ(decode_cookie(function.cookie).id, function.id) << function.symbol;
    EXPECT_EQ(function.cookie >> 46, 0U) << "bits above the last field";
  }
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wold-style-cast"
TEST(Functions, EveryCookieFieldSurvivesTheRoundTrip) {
  // A walking value: each field in turn has its maximum while its neighbours are 0.
  for (unsigned int field = 0; field < 7; ++field) {
    unsigned int v[7] = {};
    v[field] = 15;
    const ApiShape shape =
        decode_cookie(API_SHAPE(v[0], v[1], v[2], v[3], v[4], v[5], v[6], 0, 0, 0) | 513);
    const unsigned int got[7] = {shape.bytes,  shape.factor, shape.type, shape.object,
                                 shape.stream, shape.peer,   shape.redop};
    for (unsigned int i = 0; i < 7; ++i) EXPECT_EQ(got[i], v[i]) << field << " " << i;
    EXPECT_EQ(shape.id, 513);
    EXPECT_FALSE(shape.direction);
    EXPECT_FALSE(shape.per_rank);
    EXPECT_EQ(shape.layout, API_LAYOUT_ARGS);
  }
  for (std::uint32_t direction = 0; direction < COPY_DIRECTIONS; ++direction) {
    const ApiShape shape = decode_cookie(SHAPE_COPY_TO(direction, 3, 4));
    ASSERT_TRUE(shape.direction);
    EXPECT_EQ(*shape.direction, direction);
    EXPECT_EQ(shape.bytes, 3);
    EXPECT_EQ(shape.stream, 4);
  }
  EXPECT_TRUE(decode_cookie(SHAPE_COLL(3, 4, 5, 6, 0, 0, 1)).per_rank);
  for (unsigned int layout = 0; layout <= API_LAYOUT_BATCH_3D; ++layout) {
    EXPECT_EQ(decode_cookie(SHAPE_COPY_STRUCT(layout, 2)).layout, layout);
  }
}
#pragma GCC diagnostic pop

TEST(Functions, RowsCarryTheArgumentPositionsOfThePrototypes) {
  const ApiShape reduce = decode_cookie(by_symbol("ncclReduce").cookie);
  EXPECT_EQ(reduce.bytes, 3);
  EXPECT_EQ(reduce.type, 4);
  EXPECT_EQ(reduce.redop, 5);
  EXPECT_EQ(reduce.peer, 6);
  EXPECT_EQ(reduce.object, 7);
  EXPECT_EQ(reduce.stream, 8);
  const ApiShape copy_2d = decode_cookie(by_symbol("cudaMemcpy2DAsync").cookie);
  EXPECT_EQ(copy_2d.bytes, 5);
  EXPECT_EQ(copy_2d.factor, 6);
  EXPECT_EQ(copy_2d.type, 7);
  EXPECT_EQ(copy_2d.stream, 8);
  EXPECT_EQ(decode_cookie(by_symbol("cuMemcpyDtoHAsync_v2").cookie).direction, COPY_D2H);
  const ApiShape between_arrays = decode_cookie(by_symbol("cudaMemcpy2DArrayToArray").cookie);
  EXPECT_EQ(between_arrays.bytes, 7);
  EXPECT_EQ(between_arrays.factor, 8);
  EXPECT_EQ(between_arrays.type, 9);
  const ApiShape to_array = decode_cookie(by_symbol("cuMemcpyHtoAAsync_v2").cookie);
  EXPECT_EQ(to_array.bytes, 4);
  EXPECT_EQ(to_array.stream, 5);
  EXPECT_EQ(to_array.direction, COPY_H2D);
}

TEST(Functions, BatchRowsNameTheListAndItsLength) {
  struct Expected {
    std::string_view symbol;
    int list, length, stream;
  };
  const Expected batches[] = {
      {"cudaMemcpy3DBatchAsync", 2, 1, 0},  {"cuMemcpy3DBatchAsync", 2, 1, 5},
      {"cuMemcpy3DBatchAsync_v2", 2, 1, 4}, {"cudaMemcpy3DWithAttributesAsync_ptsz", 1, 0, 3},
      {"cuMemcpyBatchAsync", 3, 4, 9},      {"cuMemcpyBatchAsync_v2_ptsz", 3, 4, 8}};
  for (const Expected& expected : batches) {
    const ApiShape shape = decode_cookie(by_symbol(expected.symbol).cookie);
    EXPECT_EQ(shape.bytes, expected.list) << expected.symbol;
    EXPECT_EQ(shape.factor, expected.length) << expected.symbol;
    EXPECT_EQ(shape.stream, expected.stream) << expected.symbol;
    EXPECT_EQ(shape.direction, COPY_UNKNOWN) << expected.symbol;
    EXPECT_EQ(shape.layout, expected.symbol.find("3D") != std::string_view::npos
                                ? API_LAYOUT_BATCH_3D
                                : API_LAYOUT_BATCH)
        << expected.symbol;
  }
}

TEST(Functions, EveryPerThreadTwinHasTheShapeOfItsFunction) {
  constexpr std::uint64_t kIdBits = 0x3ff;
  for (const ApiFunction& twin : api_functions()) {
    if (!twin.symbol.ends_with("_ptds") && !twin.symbol.ends_with("_ptsz")) continue;
    const ApiFunction& plain = by_symbol(twin.symbol.substr(0, twin.symbol.size() - 5));
    EXPECT_EQ(twin.cookie & ~kIdBits, plain.cookie & ~kIdBits) << twin.symbol;
    EXPECT_EQ(twin.operation, plain.operation) << twin.symbol;
  }
}

TEST(Functions, SqlNames) {
  const std::pair<std::string_view, std::string_view> expected[] = {
      {"ncclAllReduce", "ALL_REDUCE"},
      {"ncclAllReduceConfig", "ALL_REDUCE"},
      {"ncclBcast", "BROADCAST"},
      {"ncclBroadcast", "BROADCAST"},
      {"ncclAllToAll", "ALL_TO_ALL"},
      {"ncclCommInitRankScalable", "COMM_INIT_RANK"},
      {"ncclCommInitAll", "COMM_INIT_ALL"},
      {"ncclCommFinalize", "COMM_FINALIZE"},
      {"ncclGetUniqueId", "GET_UNIQUE_ID"},
      {"cudaMemcpyAsync_ptsz", "MEMCPY"},
      {"cudaMemcpyToSymbol", "MEMCPY"},
      {"cuMemcpyDtoH_v2", "MEMCPY"},
      {"cudaMemcpy2DFromArrayAsync", "MEMCPY_2D"},
      {"cudaMemcpy3D", "MEMCPY_3D"},
      {"cudaMemcpy3DPeerAsync", "MEMCPY_PEER"},
      {"cuMemcpyPeer", "MEMCPY_PEER"},
      {"cuMemcpy3DPeer_ptds", "MEMCPY_PEER"},
      {"cudaMemcpyBatchAsync", "MEMCPY_BATCH"},
      {"cuMemcpy3DBatchAsync_v2", "MEMCPY_BATCH"},
      {"cudaMemcpy2DArrayToArray", "MEMCPY_2D"},
      {"cudaMemcpyArrayToArray_ptds", "MEMCPY"},
      {"cudaMemcpy3DWithAttributesAsync", "MEMCPY_3D"},
      {"cuMemcpyAtoA_v2", "MEMCPY"},
      {"cuStreamSynchronize_ptsz", "STREAM_SYNCHRONIZE"},
  };
  for (const auto& [symbol, name] : expected) EXPECT_EQ(op_name(by_symbol(symbol)), name) << symbol;
}

TEST(Functions, SourceFitsTheSymbol) {
  for (const ApiFunction& function : api_functions()) {
    const std::string_view symbol = function.symbol;
    if (symbol.starts_with("nccl")) {
      EXPECT_EQ(to_string(function.source), "nccl");
    } else if (symbol.starts_with("cuda")) {
      EXPECT_EQ(to_string(function.source), "cuda");
    } else {
      EXPECT_EQ(to_string(function.source), "driver");
    }
  }
}

TEST(Labels, DirectionsAndKinds) {
  EXPECT_EQ(direction_label(COPY_H2D), "h2d");
  EXPECT_EQ(direction_label(COPY_DEFAULT), "default");
  EXPECT_EQ(direction_label(COPY_UNKNOWN), "unknown");
  EXPECT_EQ(direction_label(0xffffffff), "unknown");
  EXPECT_EQ(memcpy_kind_name(2), "MemcpyDeviceToHost");
  EXPECT_EQ(memcpy_kind_name(77), "MemcpyUnknown");
}

TEST(Labels, DatatypesAndOperators) {
  EXPECT_EQ(nccl_datatype_name(9), "bfloat16");
  EXPECT_EQ(nccl_datatype_size(9), 2U);
  EXPECT_EQ(nccl_datatype_name(11), "float8e5m2");
  EXPECT_EQ(nccl_datatype_size(11), 1U);
  EXPECT_EQ(nccl_datatype_size(8), 8U);
  EXPECT_EQ(nccl_datatype_name(12), "unknown");
  EXPECT_EQ(nccl_datatype_size(12), 0U);
  EXPECT_EQ(nccl_redop_name(4), "avg");
  EXPECT_EQ(nccl_redop_name(5), "custom");
}

TEST(Labels, Results) {
  EXPECT_EQ(nccl_result_name(0), "ncclSuccess");
  EXPECT_EQ(nccl_result_name(8), "ncclTimeout");
  EXPECT_EQ(nccl_result_name(9), "9");
  EXPECT_EQ(nccl_result_name(-1), "-1");
  EXPECT_EQ(cuda_error_name(2), "cudaErrorMemoryAllocation");
  EXPECT_EQ(cuda_error_name(999), "cudaErrorUnknown");
  EXPECT_EQ(cuda_error_name(11), "11");
  EXPECT_EQ(cuda_error_name(-5), "-5");
  EXPECT_EQ(result_name(API_SOURCE_NCCL, 2), "ncclSystemError");
  EXPECT_EQ(result_name(API_SOURCE_DRIVER, 2), "cudaErrorMemoryAllocation");
}

TEST(Labels, NotReadyAndInProgressAreNoFailures) {
  EXPECT_FALSE(is_failure(API_SOURCE_NCCL, 0));
  EXPECT_FALSE(is_failure(API_SOURCE_NCCL, 7));
  EXPECT_TRUE(is_failure(API_SOURCE_NCCL, 600));
  EXPECT_FALSE(is_failure(API_SOURCE_CUDA, 600));
  EXPECT_TRUE(is_failure(API_SOURCE_DRIVER, 7));
}

}  // namespace
}  // namespace ingero::model
