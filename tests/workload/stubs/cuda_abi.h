/* SPDX-License-Identifier: Apache-2.0 */
/* The binary interface of the copy functions of libcudart and libcuda, one row per function:
 * X(name, suffix of its per-thread-stream twin, prototype). Rows under _PLAIN have no twin. */
#ifndef INGERO_WORKLOAD_CUDA_ABI_H
#define INGERO_WORKLOAD_CUDA_ABI_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* cudaMemcpy3DParms; only sizes and places matter here. */
struct cuda_memcpy_3d {
	void *src_array;
	size_t src_position[3];
	struct {
		void *pointer;
		size_t pitch, width, height;
	} src;
	void *dst_array;
	size_t dst_position[3];
	struct {
		void *pointer;
		size_t pitch, width, height;
	} dst;
	size_t extent[3]; /* width, height, depth */
	int kind;
};

/* cudaMemcpy3DPeerParms */
struct cuda_memcpy_3d_peer {
	void *src_array;
	size_t src_position[3];
	void *src_pointer;
	size_t src_pitch, src_width, src_height;
	int src_device;
	void *dst_array;
	size_t dst_position[3];
	void *dst_pointer;
	size_t dst_pitch, dst_width, dst_height;
	int dst_device;
	size_t extent[3];
};

enum { CUDA_OPERAND_POINTER = 1 };

/* cudaMemcpy3DBatchOp and CUDA_MEMCPY3D_BATCH_OP with pointers on both sides: elements are bytes */
struct cuda_memcpy_operand {
	int type;
	void *pointer;
	size_t row_length, layer_height;
	int location_type, location_id;
};
struct cuda_memcpy_3d_operation {
	struct cuda_memcpy_operand src, dst;
	size_t extent[3];
	int access_order;
	unsigned int flags;
};

enum { CU_MEMORY_HOST = 1, CU_MEMORY_DEVICE = 2 };

/* CUDA_MEMCPY2D (v2) */
struct cu_memcpy_2d {
	size_t src_x, src_y;
	int src_type;
	const void *src_host;
	unsigned long long src_device;
	void *src_array;
	size_t src_pitch;
	size_t dst_x, dst_y;
	int dst_type;
	void *dst_host;
	unsigned long long dst_device;
	void *dst_array;
	size_t dst_pitch;
	size_t width, height;
};

/* CUDA_MEMCPY3D (v2); in CUDA_MEMCPY3D_PEER the context stands in the place of `reserved` */
struct cu_memcpy_3d {
	size_t src_x, src_y, src_z, src_lod;
	int src_type;
	const void *src_host;
	unsigned long long src_device;
	void *src_array;
	void *reserved0;
	size_t src_pitch, src_height;
	size_t dst_x, dst_y, dst_z, dst_lod;
	int dst_type;
	void *dst_host;
	unsigned long long dst_device;
	void *dst_array;
	void *reserved1;
	size_t dst_pitch, dst_height;
	size_t width, height, depth;
};

#ifdef __cplusplus
#define CUDA_ABI_ASSERT static_assert
#else
#define CUDA_ABI_ASSERT _Static_assert
#endif
CUDA_ABI_ASSERT(offsetof(struct cuda_memcpy_3d, src) == 32, "srcPtr");
CUDA_ABI_ASSERT(offsetof(struct cuda_memcpy_3d, dst_array) == 64, "dstArray");
CUDA_ABI_ASSERT(offsetof(struct cuda_memcpy_3d, dst) == 96, "dstPtr");
CUDA_ABI_ASSERT(offsetof(struct cuda_memcpy_3d, extent) == 128, "extent");
CUDA_ABI_ASSERT(offsetof(struct cuda_memcpy_3d, kind) == 152, "kind");
CUDA_ABI_ASSERT(offsetof(struct cuda_memcpy_3d_peer, src_device) == 64, "srcDevice");
CUDA_ABI_ASSERT(offsetof(struct cuda_memcpy_3d_peer, dst_array) == 72, "dstArray");
CUDA_ABI_ASSERT(offsetof(struct cuda_memcpy_3d_peer, dst_device) == 136, "dstDevice");
CUDA_ABI_ASSERT(offsetof(struct cuda_memcpy_3d_peer, extent) == 144, "extent");
CUDA_ABI_ASSERT(offsetof(struct cuda_memcpy_3d_operation, dst) == 40, "dst");
CUDA_ABI_ASSERT(offsetof(struct cuda_memcpy_3d_operation, extent) == 80, "extent");
CUDA_ABI_ASSERT(sizeof(struct cuda_memcpy_3d_operation) == 112, "cudaMemcpy3DBatchOp");
CUDA_ABI_ASSERT(offsetof(struct cu_memcpy_2d, src_type) == 16, "srcMemoryType");
CUDA_ABI_ASSERT(offsetof(struct cu_memcpy_2d, dst_type) == 72, "dstMemoryType");
CUDA_ABI_ASSERT(offsetof(struct cu_memcpy_2d, width) == 112, "WidthInBytes");
CUDA_ABI_ASSERT(offsetof(struct cu_memcpy_3d, src_type) == 32, "srcMemoryType");
CUDA_ABI_ASSERT(offsetof(struct cu_memcpy_3d, dst_type) == 120, "dstMemoryType");
CUDA_ABI_ASSERT(offsetof(struct cu_memcpy_3d, width) == 176, "WidthInBytes");

#define CUDA_TWIN_FUNCTIONS(X)                                                                     \
	X(cudaMemcpy2D, ptds,                                                                      \
	  (void *dst, size_t dpitch, const void *src, size_t spitch, size_t width, size_t height,  \
	   int kind))                                                                              \
	X(cudaMemcpy2DAsync, ptsz,                                                                 \
	  (void *dst, size_t dpitch, const void *src, size_t spitch, size_t width, size_t height,  \
	   int kind, void *stream))                                                                \
	X(cudaMemcpy2DToArray, ptds,                                                               \
	  (void *dst, size_t w_offset, size_t h_offset, const void *src, size_t spitch,            \
	   size_t width, size_t height, int kind))                                                 \
	X(cudaMemcpy2DToArrayAsync, ptsz,                                                          \
	  (void *dst, size_t w_offset, size_t h_offset, const void *src, size_t spitch,            \
	   size_t width, size_t height, int kind, void *stream))                                   \
	X(cudaMemcpy2DFromArray, ptds,                                                             \
	  (void *dst, size_t dpitch, const void *src, size_t w_offset, size_t h_offset,            \
	   size_t width, size_t height, int kind))                                                 \
	X(cudaMemcpy2DFromArrayAsync, ptsz,                                                        \
	  (void *dst, size_t dpitch, const void *src, size_t w_offset, size_t h_offset,            \
	   size_t width, size_t height, int kind, void *stream))                                   \
	X(cudaMemcpyToArray, ptds,                                                                 \
	  (void *dst, size_t w_offset, size_t h_offset, const void *src, size_t count, int kind))  \
	X(cudaMemcpyToArrayAsync, ptsz,                                                            \
	  (void *dst, size_t w_offset, size_t h_offset, const void *src, size_t count, int kind,   \
	   void *stream))                                                                          \
	X(cudaMemcpyFromArray, ptds,                                                               \
	  (void *dst, const void *src, size_t w_offset, size_t h_offset, size_t count, int kind))  \
	X(cudaMemcpyFromArrayAsync, ptsz,                                                          \
	  (void *dst, const void *src, size_t w_offset, size_t h_offset, size_t count, int kind,   \
	   void *stream))                                                                          \
	X(cudaMemcpy3D, ptds, (const struct cuda_memcpy_3d *parameters))                           \
	X(cudaMemcpy3DAsync, ptsz, (const struct cuda_memcpy_3d *parameters, void *stream))        \
	X(cudaMemcpy3DPeer, ptds, (const struct cuda_memcpy_3d_peer *parameters))                  \
	X(cudaMemcpy3DPeerAsync, ptsz,                                                             \
	  (const struct cuda_memcpy_3d_peer *parameters, void *stream))                            \
	X(cudaMemcpyToSymbol, ptds,                                                                \
	  (const void *symbol, const void *src, size_t count, size_t offset, int kind))            \
	X(cudaMemcpyToSymbolAsync, ptsz,                                                           \
	  (const void *symbol, const void *src, size_t count, size_t offset, int kind,             \
	   void *stream))                                                                          \
	X(cudaMemcpyFromSymbol, ptds,                                                              \
	  (void *dst, const void *symbol, size_t count, size_t offset, int kind))                  \
	X(cudaMemcpyFromSymbolAsync, ptsz,                                                         \
	  (void *dst, const void *symbol, size_t count, size_t offset, int kind, void *stream))    \
	X(cudaMemcpyArrayToArray, ptds,                                                            \
	  (void *dst, size_t dst_w_offset, size_t dst_h_offset, const void *src,                   \
	   size_t src_w_offset, size_t src_h_offset, size_t count, int kind))                      \
	X(cudaMemcpy2DArrayToArray, ptds,                                                          \
	  (void *dst, size_t dst_w_offset, size_t dst_h_offset, const void *src,                   \
	   size_t src_w_offset, size_t src_h_offset, size_t width, size_t height, int kind))       \
	X(cudaMemcpyWithAttributesAsync, ptsz,                                                     \
	  (void *dst, const void *src, size_t count, void *attributes, void *stream))              \
	X(cudaMemcpy3DWithAttributesAsync, ptsz,                                                   \
	  (struct cuda_memcpy_3d_operation * operation, unsigned long long flags, void *stream))   \
	X(cudaMemcpy3DBatchAsync, ptsz,                                                            \
	  (size_t count, struct cuda_memcpy_3d_operation * operations, unsigned long long flags,   \
	   void *stream))                                                                          \
	X(cudaMemcpyBatchAsync, ptsz,                                                              \
	  (void *const *dsts, const void *const *srcs, const size_t *sizes, size_t count,          \
	   void *attributes, size_t *attribute_indexes, size_t attributes_count, void *stream))

/* These call the driver in the `nested` variant. */
#define CUDA_NESTING_FUNCTIONS(X)                                                                  \
	X(cudaMemcpy, ptds, (void *dst, const void *src, size_t count, int kind))                  \
	X(cudaMemcpyAsync, ptsz,                                                                   \
	  (void *dst, const void *src, size_t count, int kind, void *stream))                      \
	X(cudaStreamSynchronize, ptsz, (void *stream))

#define CUDA_PLAIN_FUNCTIONS(X)                                                                    \
	X(cudaMemcpyPeer, ,                                                                        \
	  (void *dst, int dst_device, const void *src, int src_device, size_t count))              \
	X(cudaMemcpyPeerAsync, ,                                                                   \
	  (void *dst, int dst_device, const void *src, int src_device, size_t count,               \
	   void *stream))

#define CU_TWIN_FUNCTIONS(X)                                                                       \
	X(cuMemcpy, ptds, (unsigned long long dst, unsigned long long src, size_t count))          \
	X(cuMemcpyAsync, ptsz,                                                                     \
	  (unsigned long long dst, unsigned long long src, size_t count, void *stream))            \
	X(cuMemcpyHtoD_v2, ptds, (unsigned long long dst, const void *src, size_t count))          \
	X(cuMemcpyHtoDAsync_v2, ptsz,                                                              \
	  (unsigned long long dst, const void *src, size_t count, void *stream))                   \
	X(cuMemcpyDtoH_v2, ptds, (void *dst, unsigned long long src, size_t count))                \
	X(cuMemcpyDtoHAsync_v2, ptsz,                                                              \
	  (void *dst, unsigned long long src, size_t count, void *stream))                         \
	X(cuMemcpyDtoD_v2, ptds, (unsigned long long dst, unsigned long long src, size_t count))   \
	X(cuMemcpyDtoDAsync_v2, ptsz,                                                              \
	  (unsigned long long dst, unsigned long long src, size_t count, void *stream))            \
	X(cuMemcpyHtoA_v2, ptds, (void *dst, size_t offset, const void *src, size_t count))        \
	X(cuMemcpyHtoAAsync_v2, ptsz,                                                              \
	  (void *dst, size_t offset, const void *src, size_t count, void *stream))                 \
	X(cuMemcpyAtoH_v2, ptds, (void *dst, void *src, size_t offset, size_t count))              \
	X(cuMemcpyAtoHAsync_v2, ptsz,                                                              \
	  (void *dst, void *src, size_t offset, size_t count, void *stream))                       \
	X(cuMemcpyDtoA_v2, ptds, (void *dst, size_t offset, unsigned long long src, size_t count)) \
	X(cuMemcpyAtoD_v2, ptds, (unsigned long long dst, void *src, size_t offset, size_t count)) \
	X(cuMemcpyAtoA_v2, ptds,                                                                   \
	  (void *dst, size_t dst_offset, void *src, size_t src_offset, size_t count))              \
	X(cuMemcpyPeer, ptds,                                                                      \
	  (unsigned long long dst, void *dst_context, unsigned long long src, void *src_context,   \
	   size_t count))                                                                          \
	X(cuMemcpyPeerAsync, ptsz,                                                                 \
	  (unsigned long long dst, void *dst_context, unsigned long long src, void *src_context,   \
	   size_t count, void *stream))                                                            \
	X(cuMemcpy2D_v2, ptds, (const struct cu_memcpy_2d *parameters))                            \
	X(cuMemcpy2DUnaligned_v2, ptds, (const struct cu_memcpy_2d *parameters))                   \
	X(cuMemcpy2DAsync_v2, ptsz, (const struct cu_memcpy_2d *parameters, void *stream))         \
	X(cuMemcpy3D_v2, ptds, (const struct cu_memcpy_3d *parameters))                            \
	X(cuMemcpy3DAsync_v2, ptsz, (const struct cu_memcpy_3d *parameters, void *stream))         \
	X(cuMemcpy3DPeer, ptds, (const struct cu_memcpy_3d *parameters))                           \
	X(cuMemcpy3DPeerAsync, ptsz, (const struct cu_memcpy_3d *parameters, void *stream))        \
	X(cuMemcpyBatchAsync, ptsz,                                                                \
	  (unsigned long long *dsts, unsigned long long *srcs, size_t *sizes, size_t count,        \
	   void *attributes, size_t *attribute_indexes, size_t attributes_count, size_t *failed,   \
	   void *stream))                                                                          \
	X(cuMemcpyBatchAsync_v2, ptsz,                                                             \
	  (unsigned long long *dsts, unsigned long long *srcs, size_t *sizes, size_t count,        \
	   void *attributes, size_t *attribute_indexes, size_t attributes_count, void *stream))    \
	X(cuMemcpy3DBatchAsync, ptsz,                                                              \
	  (size_t count, struct cuda_memcpy_3d_operation * operations, size_t * failed,            \
	   unsigned long long flags, void *stream))                                                \
	X(cuMemcpy3DBatchAsync_v2, ptsz,                                                           \
	  (size_t count, struct cuda_memcpy_3d_operation * operations, unsigned long long flags,   \
	   void *stream))                                                                          \
	X(cuMemcpyWithAttributesAsync, ptsz,                                                       \
	  (unsigned long long dst, unsigned long long src, size_t count, void *attributes,         \
	   void *stream))                                                                          \
	X(cuMemcpy3DWithAttributesAsync, ptsz,                                                     \
	  (struct cuda_memcpy_3d_operation * operation, unsigned long long flags, void *stream))   \
	X(cuStreamSynchronize, ptsz, (void *stream))

#define CUDA_ABI_DECLARE(name, suffix, args) int name args;
#define CUDA_ABI_DECLARE_TWINS(name, suffix, args)                                                 \
	int name args;                                                                             \
	int name##_##suffix args;
CUDA_TWIN_FUNCTIONS(CUDA_ABI_DECLARE_TWINS)
CUDA_NESTING_FUNCTIONS(CUDA_ABI_DECLARE_TWINS)
CUDA_PLAIN_FUNCTIONS(CUDA_ABI_DECLARE)
CU_TWIN_FUNCTIONS(CUDA_ABI_DECLARE_TWINS)
int cudaRuntimeGetVersion(int *version);
int cudaSetDevice(int device);
int cudaGetDevice(int *device);
int cudaStreamDestroy(void *stream);
int cuStreamDestroy(void *stream);
int cuStreamDestroy_v2(void *stream);
int cuDriverGetVersion(int *version);

#ifdef __cplusplus
}
#endif
#endif
