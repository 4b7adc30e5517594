// SPDX-License-Identifier: Apache-2.0
#include "model/functions.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>

namespace ingero::model {
namespace {

// The table is C, shared with BPF: its casts are C casts.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wold-style-cast"
#define INGERO_ROW(id, symbol, operation, family, source, shape) \
  ApiFunction{id, #symbol, #operation, family, source, (shape) | std::uint64_t{id}},
constexpr ApiFunction kFunctions[] = {API_FUNCTIONS(INGERO_ROW)};
#undef INGERO_ROW
#pragma GCC diagnostic pop

constexpr std::size_t kIdSpace = 1024;  // bits 0-9 of the cookie
constexpr std::int16_t kNoRow = -1;

constexpr bool ids_are_valid() {
  std::array<bool, kIdSpace> seen{};
  for (const ApiFunction& function : kFunctions) {
    if (function.id == 0 || function.id >= kIdSpace || seen[function.id]) return false;
    seen[function.id] = true;
  }
  return true;
}
static_assert(ids_are_valid(),
              "bpf/api_functions.h: an id is used twice or does not fit the cookie");

constexpr std::array<std::int16_t, kIdSpace> index_by_id() {
  std::array<std::int16_t, kIdSpace> index{};
  index.fill(kNoRow);
  for (std::size_t i = 0; i < std::size(kFunctions); ++i) {
    index[kFunctions[i].id] = static_cast<std::int16_t>(i);
  }
  return index;
}
constexpr auto kIndexById = index_by_id();

struct NameOfOperation {
  std::string_view operation;
  std::string_view name;
};

constexpr NameOfOperation kOperationNames[] = {
    {"ncclAllReduce", "ALL_REDUCE"},
    {"ncclAllGather", "ALL_GATHER"},
    {"ncclReduceScatter", "REDUCE_SCATTER"},
    {"ncclBcast", "BROADCAST"},
    {"ncclBroadcast", "BROADCAST"},
    {"ncclReduce", "REDUCE"},
    {"ncclSend", "SEND"},
    {"ncclRecv", "RECV"},
    {"ncclAlltoAll", "ALL_TO_ALL"},
    {"ncclGather", "GATHER"},
    {"ncclScatter", "SCATTER"},
    {"ncclGroupStart", "GROUP_START"},
    {"ncclGroupEnd", "GROUP_END"},
    {"ncclCommInitRank", "COMM_INIT_RANK"},
    {"ncclCommInitRankConfig", "COMM_INIT_RANK"},
    {"ncclCommInitRankScalable", "COMM_INIT_RANK"},
    {"ncclCommInitAll", "COMM_INIT_ALL"},
    {"ncclCommSplit", "COMM_SPLIT"},
    {"ncclCommShrink", "COMM_SHRINK"},
    {"ncclCommGrow", "COMM_GROW"},
    {"ncclCommDestroy", "COMM_DESTROY"},
    {"ncclCommAbort", "COMM_ABORT"},
    {"ncclCommFinalize", "COMM_FINALIZE"},
    {"ncclGetUniqueId", "GET_UNIQUE_ID"},
    {"cudaStreamSynchronize", "STREAM_SYNCHRONIZE"},
    {"cuStreamSynchronize", "STREAM_SYNCHRONIZE"},
    {"ncclCommGetAsyncError", "GET_ASYNC_ERROR"},
    {"cudaSetDevice", "SET_DEVICE"},
    {"cudaStreamDestroy", "STREAM_DESTROY"},
    {"cuStreamDestroy", "STREAM_DESTROY"},
};

constexpr bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

constexpr std::string_view name_of(const ApiFunction& function) {
  for (const NameOfOperation& row : kOperationNames) {
    if (row.operation == function.operation) return row.name;
  }
  if (function.family != API_CUDA_COPY) return {};
  if (contains(function.operation, "Batch")) return "MEMCPY_BATCH";
  if (contains(function.operation, "Peer")) return "MEMCPY_PEER";
  if (contains(function.operation, "3D")) return "MEMCPY_3D";
  if (contains(function.operation, "2D")) return "MEMCPY_2D";
  return "MEMCPY";
}

constexpr bool every_function_has_a_name() {
  return std::all_of(std::begin(kFunctions), std::end(kFunctions),
                     [](const ApiFunction& function) { return !name_of(function).empty(); });
}
static_assert(every_function_has_a_name(), "a row of bpf/api_functions.h has no SQL name here");

constexpr auto name_all() {
  std::array<std::string_view, std::size(kFunctions)> names{};
  for (std::size_t i = 0; i < names.size(); ++i) names[i] = name_of(kFunctions[i]);
  return names;
}
constexpr auto kOpNames = name_all();

constexpr std::string_view kDirectionLabels[COPY_DIRECTIONS] = {"h2h", "h2d",     "d2h",
                                                                "d2d", "default", "unknown"};
constexpr std::string_view kMemcpyKinds[COPY_DIRECTIONS] = {
    "MemcpyHostToHost",     "MemcpyHostToDevice", "MemcpyDeviceToHost",
    "MemcpyDeviceToDevice", "MemcpyDefault",      "MemcpyUnknown"};

struct Datatype {
  std::string_view name;
  std::uint32_t size;
};
constexpr Datatype kDatatypes[] = {
    {"int8", 1},    {"uint8", 1},    {"int32", 4},      {"uint32", 4},
    {"int64", 8},   {"uint64", 8},   {"float16", 2},    {"float32", 4},
    {"float64", 8}, {"bfloat16", 2}, {"float8e4m3", 1}, {"float8e5m2", 1},
};

constexpr std::string_view kRedops[] = {"sum", "prod", "max", "min", "avg"};

constexpr std::string_view kNcclResults[] = {
    "ncclSuccess",       "ncclUnhandledCudaError", "ncclSystemError",
    "ncclInternalError", "ncclInvalidArgument",    "ncclInvalidUsage",
    "ncclRemoteError",   "ncclInProgress",         "ncclTimeout"};
constexpr std::int32_t kNcclInProgress = 7;
constexpr std::int32_t kCudaNotReady = 600;

struct CudaError {
  std::int32_t code;
  std::string_view name;
};
// cudaError of driver_types.h, CUDA 13.5, ascending.
constexpr CudaError kCudaErrors[] = {
    {0, "cudaSuccess"},
    {1, "cudaErrorInvalidValue"},
    {2, "cudaErrorMemoryAllocation"},
    {3, "cudaErrorInitializationError"},
    {4, "cudaErrorCudartUnloading"},
    {5, "cudaErrorProfilerDisabled"},
    {6, "cudaErrorProfilerNotInitialized"},
    {7, "cudaErrorProfilerAlreadyStarted"},
    {8, "cudaErrorProfilerAlreadyStopped"},
    {9, "cudaErrorInvalidConfiguration"},
    {10, "cudaErrorVersionTranslation"},
    {12, "cudaErrorInvalidPitchValue"},
    {13, "cudaErrorInvalidSymbol"},
    {16, "cudaErrorInvalidHostPointer"},
    {17, "cudaErrorInvalidDevicePointer"},
    {18, "cudaErrorInvalidTexture"},
    {19, "cudaErrorInvalidTextureBinding"},
    {20, "cudaErrorInvalidChannelDescriptor"},
    {21, "cudaErrorInvalidMemcpyDirection"},
    {22, "cudaErrorAddressOfConstant"},
    {23, "cudaErrorTextureFetchFailed"},
    {24, "cudaErrorTextureNotBound"},
    {25, "cudaErrorSynchronizationError"},
    {26, "cudaErrorInvalidFilterSetting"},
    {27, "cudaErrorInvalidNormSetting"},
    {28, "cudaErrorMixedDeviceExecution"},
    {31, "cudaErrorNotYetImplemented"},
    {32, "cudaErrorMemoryValueTooLarge"},
    {34, "cudaErrorStubLibrary"},
    {35, "cudaErrorInsufficientDriver"},
    {36, "cudaErrorCallRequiresNewerDriver"},
    {37, "cudaErrorInvalidSurface"},
    {43, "cudaErrorDuplicateVariableName"},
    {44, "cudaErrorDuplicateTextureName"},
    {45, "cudaErrorDuplicateSurfaceName"},
    {46, "cudaErrorDevicesUnavailable"},
    {49, "cudaErrorIncompatibleDriverContext"},
    {52, "cudaErrorMissingConfiguration"},
    {53, "cudaErrorPriorLaunchFailure"},
    {65, "cudaErrorLaunchMaxDepthExceeded"},
    {66, "cudaErrorLaunchFileScopedTex"},
    {67, "cudaErrorLaunchFileScopedSurf"},
    {68, "cudaErrorSyncDepthExceeded"},
    {69, "cudaErrorLaunchPendingCountExceeded"},
    {98, "cudaErrorInvalidDeviceFunction"},
    {100, "cudaErrorNoDevice"},
    {101, "cudaErrorInvalidDevice"},
    {102, "cudaErrorDeviceNotLicensed"},
    {103, "cudaErrorSoftwareValidityNotEstablished"},
    {127, "cudaErrorStartupFailure"},
    {200, "cudaErrorInvalidKernelImage"},
    {201, "cudaErrorDeviceUninitialized"},
    {205, "cudaErrorMapBufferObjectFailed"},
    {206, "cudaErrorUnmapBufferObjectFailed"},
    {207, "cudaErrorArrayIsMapped"},
    {208, "cudaErrorAlreadyMapped"},
    {209, "cudaErrorNoKernelImageForDevice"},
    {210, "cudaErrorAlreadyAcquired"},
    {211, "cudaErrorNotMapped"},
    {212, "cudaErrorNotMappedAsArray"},
    {213, "cudaErrorNotMappedAsPointer"},
    {214, "cudaErrorECCUncorrectable"},
    {215, "cudaErrorUnsupportedLimit"},
    {216, "cudaErrorDeviceAlreadyInUse"},
    {217, "cudaErrorPeerAccessUnsupported"},
    {218, "cudaErrorInvalidPtx"},
    {219, "cudaErrorInvalidGraphicsContext"},
    {220, "cudaErrorNvlinkUncorrectable"},
    {221, "cudaErrorJitCompilerNotFound"},
    {222, "cudaErrorUnsupportedPtxVersion"},
    {223, "cudaErrorJitCompilationDisabled"},
    {224, "cudaErrorUnsupportedExecAffinity"},
    {225, "cudaErrorUnsupportedDevSideSync"},
    {226, "cudaErrorContained"},
    {227, "cudaErrorInsufficientLoaderVersion"},
    {300, "cudaErrorInvalidSource"},
    {301, "cudaErrorFileNotFound"},
    {302, "cudaErrorSharedObjectSymbolNotFound"},
    {303, "cudaErrorSharedObjectInitFailed"},
    {304, "cudaErrorOperatingSystem"},
    {400, "cudaErrorInvalidResourceHandle"},
    {401, "cudaErrorIllegalState"},
    {402, "cudaErrorLossyQuery"},
    {500, "cudaErrorSymbolNotFound"},
    {600, "cudaErrorNotReady"},
    {700, "cudaErrorIllegalAddress"},
    {701, "cudaErrorLaunchOutOfResources"},
    {702, "cudaErrorLaunchTimeout"},
    {703, "cudaErrorLaunchIncompatibleTexturing"},
    {704, "cudaErrorPeerAccessAlreadyEnabled"},
    {705, "cudaErrorPeerAccessNotEnabled"},
    {708, "cudaErrorSetOnActiveProcess"},
    {709, "cudaErrorContextIsDestroyed"},
    {710, "cudaErrorAssert"},
    {711, "cudaErrorTooManyPeers"},
    {712, "cudaErrorHostMemoryAlreadyRegistered"},
    {713, "cudaErrorHostMemoryNotRegistered"},
    {714, "cudaErrorHardwareStackError"},
    {715, "cudaErrorIllegalInstruction"},
    {716, "cudaErrorMisalignedAddress"},
    {717, "cudaErrorInvalidAddressSpace"},
    {718, "cudaErrorInvalidPc"},
    {719, "cudaErrorLaunchFailure"},
    {720, "cudaErrorCooperativeLaunchTooLarge"},
    {721, "cudaErrorTensorMemoryLeak"},
    {800, "cudaErrorNotPermitted"},
    {801, "cudaErrorNotSupported"},
    {802, "cudaErrorSystemNotReady"},
    {803, "cudaErrorSystemDriverMismatch"},
    {804, "cudaErrorCompatNotSupportedOnDevice"},
    {805, "cudaErrorMpsConnectionFailed"},
    {806, "cudaErrorMpsRpcFailure"},
    {807, "cudaErrorMpsServerNotReady"},
    {808, "cudaErrorMpsMaxClientsReached"},
    {809, "cudaErrorMpsMaxConnectionsReached"},
    {810, "cudaErrorMpsClientTerminated"},
    {811, "cudaErrorCdpNotSupported"},
    {812, "cudaErrorCdpVersionMismatch"},
    {900, "cudaErrorStreamCaptureUnsupported"},
    {901, "cudaErrorStreamCaptureInvalidated"},
    {902, "cudaErrorStreamCaptureMerge"},
    {903, "cudaErrorStreamCaptureUnmatched"},
    {904, "cudaErrorStreamCaptureUnjoined"},
    {905, "cudaErrorStreamCaptureIsolation"},
    {906, "cudaErrorStreamCaptureImplicit"},
    {907, "cudaErrorCapturedEvent"},
    {908, "cudaErrorStreamCaptureWrongThread"},
    {909, "cudaErrorTimeout"},
    {910, "cudaErrorGraphExecUpdateFailure"},
    {911, "cudaErrorExternalDevice"},
    {912, "cudaErrorInvalidClusterSize"},
    {913, "cudaErrorFunctionNotLoaded"},
    {914, "cudaErrorInvalidResourceType"},
    {915, "cudaErrorInvalidResourceConfiguration"},
    {917, "cudaErrorStreamDetached"},
    {918, "cudaErrorGraphRecaptureFailure"},
    {919, "cudaErrorFabricNotReady"},
    {999, "cudaErrorUnknown"},
};
static_assert(std::is_sorted(std::begin(kCudaErrors), std::end(kCudaErrors),
                             [](const CudaError& a, const CudaError& b) {
                               return a.code < b.code;
                             }));

std::size_t direction_index(std::uint32_t direction) {
  return direction < COPY_DIRECTIONS ? direction : std::size_t{COPY_UNKNOWN};
}

}  // namespace

ApiShape decode_cookie(std::uint64_t cookie) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wold-style-cast"
  const auto field = [](unsigned int value) { return static_cast<std::uint8_t>(value); };
  ApiShape shape;
  shape.id = static_cast<std::uint16_t>(API_COOKIE_ID(cookie));
  shape.bytes = field(API_COOKIE_BYTES(cookie));
  shape.factor = field(API_COOKIE_FACTOR(cookie));
  shape.type = field(API_COOKIE_TYPE(cookie));
  shape.object = field(API_COOKIE_OBJECT(cookie));
  shape.stream = field(API_COOKIE_STREAM(cookie));
  shape.peer = field(API_COOKIE_PEER(cookie));
  shape.redop = field(API_COOKIE_REDOP(cookie));
  const unsigned int direction = API_COOKIE_DIRECTION(cookie);
  if (direction != 0) {
    shape.direction = static_cast<copy_direction>(direction_index(direction - 1));
  }
  shape.per_rank = API_COOKIE_PER_RANK(cookie) != 0;
  shape.layout = static_cast<api_layout>(API_COOKIE_LAYOUT(cookie));
  return shape;
#pragma GCC diagnostic pop
}

std::span<const ApiFunction> api_functions() { return kFunctions; }

const ApiFunction* find_api_function(std::uint16_t id) {
  if (id >= kIdSpace || kIndexById[id] == kNoRow) return nullptr;
  return &kFunctions[kIndexById[id]];
}

std::string_view op_name(const ApiFunction& function) {
  if (function.id >= kIdSpace || kIndexById[function.id] == kNoRow) return "UNKNOWN";
  return kOpNames[static_cast<std::size_t>(kIndexById[function.id])];
}

std::string_view to_string(api_source source) {
  switch (source) {
    case API_SOURCE_NONE: return "none";
    case API_SOURCE_CUDA: return "cuda";
    case API_SOURCE_DRIVER: return "driver";
    case API_SOURCE_NCCL: return "nccl";
  }
  return "none";
}

std::string_view direction_label(std::uint32_t direction) {
  return kDirectionLabels[direction_index(direction)];
}

std::string_view memcpy_kind_name(std::uint32_t direction) {
  return kMemcpyKinds[direction_index(direction)];
}

std::string_view nccl_datatype_name(std::uint32_t datatype) {
  return datatype < std::size(kDatatypes) ? kDatatypes[datatype].name : "unknown";
}

std::uint32_t nccl_datatype_size(std::uint32_t datatype) {
  return datatype < std::size(kDatatypes) ? kDatatypes[datatype].size : 0;
}

std::string_view nccl_redop_name(std::uint32_t redop) {
  return redop < std::size(kRedops) ? kRedops[redop] : "custom";
}

std::string nccl_result_name(std::int32_t result) {
  if (result >= 0 && static_cast<std::size_t>(result) < std::size(kNcclResults)) {
    return std::string(kNcclResults[result]);
  }
  return fmt::to_string(result);
}

std::string cuda_error_name(std::int32_t error) {
  const auto* row =
      std::lower_bound(std::begin(kCudaErrors), std::end(kCudaErrors), error,
                       [](const CudaError& a, std::int32_t code) { return a.code < code; });
  if (row != std::end(kCudaErrors) && row->code == error) return std::string(row->name);
  return fmt::to_string(error);
}

std::string result_name(api_source source, std::int32_t result) {
  return source == API_SOURCE_NCCL ? nccl_result_name(result) : cuda_error_name(result);
}

bool is_failure(api_source source, std::int32_t result) {
  return result != 0 && result != (source == API_SOURCE_NCCL ? kNcclInProgress : kCudaNotReady);
}

}  // namespace ingero::model
