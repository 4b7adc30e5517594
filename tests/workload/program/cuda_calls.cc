// SPDX-License-Identifier: Apache-2.0
#include "program/cuda_calls.h"

namespace ingero::workload {
namespace {

char host_buffer[4096];
void* const kHost = host_buffer;
void* const kDevice = reinterpret_cast<void*>(0x7f0000000000);  // a plausible device address
constexpr unsigned long long kDeviceAddress = 0x7f0000000000;
constexpr std::size_t kPitch = 1024;

// Both names of a function, as a program compiled with either kind of default stream calls it.
template <class Signature>
struct Twins {
  Function<Signature> plain, twin;
};

#define WORKLOAD_TWINS(library, name, suffix)                                     \
  Twins<decltype(name)> {                                                         \
    WORKLOAD_FUNCTION(library, name), WORKLOAD_FUNCTION(library, name##_##suffix) \
  }

template <class Signature, class... Arguments>
void call_both(Session& session, const Twins<Signature>& twins, const char* direction,
               std::size_t bytes, Arguments... arguments) {
  session.call(twins.plain, direction, bytes, arguments...);
  session.call(twins.twin, direction, bytes, arguments...);
}

void plain_copies(Session& session, int kind) {
  const Library& lib = session.context().cudart;
  const char* direction = kDirections[static_cast<unsigned>(kind)];
  const std::size_t bytes = 4096U + static_cast<unsigned>(kind);
  void* stream = session.stream();
  const void* from = kHost;
  call_both(session, WORKLOAD_TWINS(lib, cudaMemcpy, ptds), direction, bytes, kDevice, from, bytes,
            kind);
  call_both(session, WORKLOAD_TWINS(lib, cudaMemcpyAsync, ptsz), direction, bytes, kDevice, from,
            bytes, kind, stream);
  const std::size_t symbol = 512U + static_cast<unsigned>(kind), offset = 16;
  call_both(session, WORKLOAD_TWINS(lib, cudaMemcpyToSymbol, ptds), direction, symbol, from, from,
            symbol, offset, kind);
  call_both(session, WORKLOAD_TWINS(lib, cudaMemcpyToSymbolAsync, ptsz), direction, symbol, from,
            from, symbol, offset, kind, stream);
  call_both(session, WORKLOAD_TWINS(lib, cudaMemcpyFromSymbol, ptds), direction, symbol, kHost,
            from, symbol, offset, kind);
  call_both(session, WORKLOAD_TWINS(lib, cudaMemcpyFromSymbolAsync, ptsz), direction, symbol, kHost,
            from, symbol, offset, kind, stream);
}

void flat_copies(Session& session, int kind) {
  const Library& lib = session.context().cudart;
  const char* direction = kDirections[static_cast<unsigned>(kind)];
  const std::size_t width = 640U + static_cast<unsigned>(kind), height = 48, none = 0;
  const std::size_t bytes = width * height;
  void* stream = session.stream();
  const void* from = kHost;
  call_both(session, WORKLOAD_TWINS(lib, cudaMemcpy2D, ptds), direction, bytes, kDevice, kPitch,
            from, kPitch, width, height, kind);
  call_both(session, WORKLOAD_TWINS(lib, cudaMemcpy2DAsync, ptsz), direction, bytes, kDevice,
            kPitch, from, kPitch, width, height, kind, stream);
  call_both(session, WORKLOAD_TWINS(lib, cudaMemcpy2DToArray, ptds), direction, bytes, kDevice,
            none, none, from, kPitch, width, height, kind);
  call_both(session, WORKLOAD_TWINS(lib, cudaMemcpy2DToArrayAsync, ptsz), direction, bytes, kDevice,
            none, none, from, kPitch, width, height, kind, stream);
  call_both(session, WORKLOAD_TWINS(lib, cudaMemcpy2DFromArray, ptds), direction, bytes, kDevice,
            kPitch, from, none, none, width, height, kind);
  call_both(session, WORKLOAD_TWINS(lib, cudaMemcpy2DFromArrayAsync, ptsz), direction, bytes,
            kDevice, kPitch, from, none, none, width, height, kind, stream);
  const std::size_t count = 768U + static_cast<unsigned>(kind);
  call_both(session, WORKLOAD_TWINS(lib, cudaMemcpyToArray, ptds), direction, count, kDevice, none,
            none, from, count, kind);
  call_both(session, WORKLOAD_TWINS(lib, cudaMemcpyToArrayAsync, ptsz), direction, count, kDevice,
            none, none, from, count, kind, stream);
  call_both(session, WORKLOAD_TWINS(lib, cudaMemcpyFromArray, ptds), direction, count, kDevice,
            from, none, none, count, kind);
  call_both(session, WORKLOAD_TWINS(lib, cudaMemcpyFromArrayAsync, ptsz), direction, count, kDevice,
            from, none, none, count, kind, stream);
  call_both(session, WORKLOAD_TWINS(lib, cudaMemcpyArrayToArray, ptds), direction, count, kDevice,
            none, none, from, none, none, count, kind);
  call_both(session, WORKLOAD_TWINS(lib, cudaMemcpy2DArrayToArray, ptds), direction, bytes, kDevice,
            none, none, from, none, none, width, height, kind);
}

void volume_copies(Session& session, int kind) {
  const Library& lib = session.context().cudart;
  const char* direction = kDirections[static_cast<unsigned>(kind)];
  cuda_memcpy_3d volume{};
  volume.src = {kHost, kPitch, 64, 32};
  volume.dst = {kDevice, kPitch, 64, 32};
  volume.extent[0] = 64;
  volume.extent[1] = 32;
  volume.extent[2] = 4U + static_cast<unsigned>(kind);
  volume.kind = kind;
  const std::size_t bytes = 64 * 32 * volume.extent[2];
  const cuda_memcpy_3d* parameters = &volume;
  call_both(session, WORKLOAD_TWINS(lib, cudaMemcpy3D, ptds), direction, bytes, parameters);
  call_both(session, WORKLOAD_TWINS(lib, cudaMemcpy3DAsync, ptsz), direction, bytes, parameters,
            session.stream());
}

void peer_copies(Session& session) {
  const Library& lib = session.context().cudart;
  void* stream = session.stream();
  const void* from = kDevice;
  const std::size_t bytes = 2048;
  session.call(WORKLOAD_FUNCTION(lib, cudaMemcpyPeer), "d2d", bytes, kDevice, 1, from, 0, bytes);
  session.call(WORKLOAD_FUNCTION(lib, cudaMemcpyPeerAsync), "d2d", bytes, kDevice, 1, from, 0,
               bytes, stream);
  cuda_memcpy_3d_peer volume{};
  volume.src_pointer = volume.dst_pointer = kDevice;
  volume.dst_device = 1;
  volume.extent[0] = 128;
  volume.extent[1] = 16;
  volume.extent[2] = 2;
  const cuda_memcpy_3d_peer* parameters = &volume;
  call_both(session, WORKLOAD_TWINS(lib, cudaMemcpy3DPeer, ptds), "d2d", 128 * 16 * 2, parameters);
  call_both(session, WORKLOAD_TWINS(lib, cudaMemcpy3DPeerAsync, ptsz), "d2d", 128 * 16 * 2,
            parameters, stream);
}

// Two copies from pointer to pointer, 3000 bytes and 64: the second is alone in the calls of one.
struct Operations {
  cuda_memcpy_3d_operation list[2]{};
  static constexpr std::size_t kCount = 2, kBytes = 3064, kOneBytes = 64;

  Operations() {
    for (cuda_memcpy_3d_operation& operation : list) {
      operation.src = {CUDA_OPERAND_POINTER, kHost, 0, 0, 0, 0};
      operation.dst = {CUDA_OPERAND_POINTER, kDevice, 0, 0, 1, 0};
      operation.access_order = 1;
    }
    set_extent(list[0], 50, 20, 3);
    set_extent(list[1], 8, 4, 2);
  }

  static void set_extent(cuda_memcpy_3d_operation& operation, std::size_t width, std::size_t height,
                         std::size_t depth) {
    operation.extent[0] = width;
    operation.extent[1] = height;
    operation.extent[2] = depth;
  }
};

void attribute_copies(Session& session) {
  const Library& lib = session.context().cudart;
  void* stream = session.stream();
  const void* from = kHost;
  const std::size_t bytes = 1536;
  const unsigned long long flags = 0;
  char attribute[64] = {};
  call_both(session, WORKLOAD_TWINS(lib, cudaMemcpyWithAttributesAsync, ptsz), "unknown", bytes,
            kDevice, from, bytes, static_cast<void*>(attribute), stream);
  Operations operations;
  call_both(session, WORKLOAD_TWINS(lib, cudaMemcpy3DWithAttributesAsync, ptsz), "unknown",
            Operations::kOneBytes, &operations.list[1], flags, stream);
}

void batch_copies(Session& session) {
  const Library& lib = session.context().cudart;
  void* stream = session.stream();
  void* dsts[3] = {kDevice, kDevice, kDevice};
  const void* srcs[3] = {kHost, kHost, kHost};
  const std::size_t sizes[3] = {100, 2000, 30000};
  std::size_t index = 0, count = 3, attributes = 1;
  char attribute[64] = {};
  call_both(session, WORKLOAD_TWINS(lib, cudaMemcpyBatchAsync, ptsz), "unknown", 32100,
            static_cast<void* const*>(dsts), static_cast<const void* const*>(srcs),
            static_cast<const std::size_t*>(sizes), count, static_cast<void*>(attribute), &index,
            attributes, stream);
  Operations operations;
  call_both(session, WORKLOAD_TWINS(lib, cudaMemcpy3DBatchAsync, ptsz), "unknown",
            Operations::kBytes, Operations::kCount, operations.list, 0ULL, stream);
}

void driver_plain_copies(Session& session) {
  const Library& lib = session.context().cuda;
  void* stream = session.stream();
  const void* from = kHost;
  const unsigned long long device = kDeviceAddress;
  const std::size_t n = 8192;
  call_both(session, WORKLOAD_TWINS(lib, cuMemcpy, ptds), "default", n, device, device, n);
  call_both(session, WORKLOAD_TWINS(lib, cuMemcpyAsync, ptsz), "default", n, device, device, n,
            stream);
  call_both(session, WORKLOAD_TWINS(lib, cuMemcpyHtoD_v2, ptds), "h2d", n, device, from, n);
  call_both(session, WORKLOAD_TWINS(lib, cuMemcpyHtoDAsync_v2, ptsz), "h2d", n, device, from, n,
            stream);
  call_both(session, WORKLOAD_TWINS(lib, cuMemcpyDtoH_v2, ptds), "d2h", n, kHost, device, n);
  call_both(session, WORKLOAD_TWINS(lib, cuMemcpyDtoHAsync_v2, ptsz), "d2h", n, kHost, device, n,
            stream);
  call_both(session, WORKLOAD_TWINS(lib, cuMemcpyDtoD_v2, ptds), "d2d", n, device, device, n);
  call_both(session, WORKLOAD_TWINS(lib, cuMemcpyDtoDAsync_v2, ptsz), "d2d", n, device, device, n,
            stream);
  void* context = nullptr;
  call_both(session, WORKLOAD_TWINS(lib, cuMemcpyPeer, ptds), "d2d", n, device, context, device,
            context, n);
  call_both(session, WORKLOAD_TWINS(lib, cuMemcpyPeerAsync, ptsz), "d2d", n, device, context,
            device, context, n, stream);
}

void driver_array_copies(Session& session) {
  const Library& lib = session.context().cuda;
  void* stream = session.stream();
  void* array = kDevice;
  const void* from = kHost;
  const unsigned long long device = kDeviceAddress;
  const std::size_t n = 5120, offset = 16;
  call_both(session, WORKLOAD_TWINS(lib, cuMemcpyHtoA_v2, ptds), "h2d", n, array, offset, from, n);
  call_both(session, WORKLOAD_TWINS(lib, cuMemcpyHtoAAsync_v2, ptsz), "h2d", n, array, offset, from,
            n, stream);
  call_both(session, WORKLOAD_TWINS(lib, cuMemcpyAtoH_v2, ptds), "d2h", n, kHost, array, offset, n);
  call_both(session, WORKLOAD_TWINS(lib, cuMemcpyAtoHAsync_v2, ptsz), "d2h", n, kHost, array,
            offset, n, stream);
  call_both(session, WORKLOAD_TWINS(lib, cuMemcpyDtoA_v2, ptds), "d2d", n, array, offset, device,
            n);
  call_both(session, WORKLOAD_TWINS(lib, cuMemcpyAtoD_v2, ptds), "d2d", n, device, array, offset,
            n);
  call_both(session, WORKLOAD_TWINS(lib, cuMemcpyAtoA_v2, ptds), "d2d", n, array, offset, array,
            offset, n);
}

void driver_batch_copies(Session& session) {
  const Library& lib = session.context().cuda;
  void* stream = session.stream();
  unsigned long long addresses[2] = {kDeviceAddress, kDeviceAddress};
  std::size_t sizes[2] = {700, 11000}, count = 2, index = 0, attributes = 1, failed = 0;
  const std::size_t bytes = 11700;
  char attribute[64] = {};
  void* attribute_list = attribute;
  call_both(session, WORKLOAD_TWINS(lib, cuMemcpyBatchAsync, ptsz), "unknown", bytes, addresses,
            addresses, sizes, count, attribute_list, &index, attributes, &failed, stream);
  call_both(session, WORKLOAD_TWINS(lib, cuMemcpyBatchAsync_v2, ptsz), "unknown", bytes, addresses,
            addresses, sizes, count, attribute_list, &index, attributes, stream);
  Operations operations;
  const unsigned long long flags = 0;
  call_both(session, WORKLOAD_TWINS(lib, cuMemcpy3DBatchAsync, ptsz), "unknown", Operations::kBytes,
            Operations::kCount, operations.list, &failed, flags, stream);
  call_both(session, WORKLOAD_TWINS(lib, cuMemcpy3DBatchAsync_v2, ptsz), "unknown",
            Operations::kBytes, Operations::kCount, operations.list, flags, stream);
  call_both(session, WORKLOAD_TWINS(lib, cuMemcpyWithAttributesAsync, ptsz), "unknown", sizes[1],
            addresses[0], addresses[1], sizes[1], attribute_list, stream);
  call_both(session, WORKLOAD_TWINS(lib, cuMemcpy3DWithAttributesAsync, ptsz), "unknown",
            Operations::kOneBytes, &operations.list[1], flags, stream);
}

// Structure copies in one direction, told by the two memory types.
void driver_struct_copies(Session& session, int src_type, int dst_type, const char* direction) {
  const Library& lib = session.context().cuda;
  cu_memcpy_2d flat{};
  flat.src_type = src_type;
  flat.dst_type = dst_type;
  flat.src_pitch = flat.dst_pitch = kPitch;
  flat.width = 300;
  flat.height = 20;
  const cu_memcpy_2d* plane = &flat;
  call_both(session, WORKLOAD_TWINS(lib, cuMemcpy2D_v2, ptds), direction, 6000, plane);
  call_both(session, WORKLOAD_TWINS(lib, cuMemcpy2DUnaligned_v2, ptds), direction, 6000, plane);
  call_both(session, WORKLOAD_TWINS(lib, cuMemcpy2DAsync_v2, ptsz), direction, 6000, plane,
            session.stream());
  cu_memcpy_3d deep{};
  deep.src_type = src_type;
  deep.dst_type = dst_type;
  deep.width = 70;
  deep.height = 10;
  deep.depth = 3;
  const cu_memcpy_3d* volume = &deep;
  call_both(session, WORKLOAD_TWINS(lib, cuMemcpy3D_v2, ptds), direction, 2100, volume);
  call_both(session, WORKLOAD_TWINS(lib, cuMemcpy3DAsync_v2, ptsz), direction, 2100, volume,
            session.stream());
  call_both(session, WORKLOAD_TWINS(lib, cuMemcpy3DPeer, ptds), direction, 2100, volume);
  call_both(session, WORKLOAD_TWINS(lib, cuMemcpy3DPeerAsync, ptsz), direction, 2100, volume,
            session.stream());
}

}  // namespace

void runtime_copies(Session& session) {
  for (int kind = 0; kind < 5; kind++) {
    plain_copies(session, kind);
    flat_copies(session, kind);
    volume_copies(session, kind);
  }
  peer_copies(session);
  attribute_copies(session);
  batch_copies(session);
}

void driver_copies(Session& session) {
  driver_plain_copies(session);
  driver_array_copies(session);
  driver_batch_copies(session);
  driver_struct_copies(session, CU_MEMORY_HOST, CU_MEMORY_DEVICE, "h2d");
  driver_struct_copies(session, CU_MEMORY_DEVICE, CU_MEMORY_HOST, "d2h");
  driver_struct_copies(session, CU_MEMORY_DEVICE, CU_MEMORY_DEVICE, "d2d");
}

void stream_waits(Session& session) {
  call_both(session, WORKLOAD_TWINS(session.context().cudart, cudaStreamSynchronize, ptsz), "", 0,
            session.stream());
  call_both(session, WORKLOAD_TWINS(session.context().cuda, cuStreamSynchronize, ptsz), "", 0,
            session.stream());
}

int copy_async(Session& session, std::size_t bytes, int kind) {
  return session.call(WORKLOAD_FUNCTION(session.context().cudart, cudaMemcpyAsync),
                      kDirections[static_cast<unsigned>(kind)], bytes, kDevice,
                      static_cast<const void*>(kHost), bytes, kind, session.stream());
}

}  // namespace ingero::workload
