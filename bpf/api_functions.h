/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* Every traced API function, one row each; included by the BPF programs and by the agent.
 *
 * A row says where the arguments of interest stand (1-based positions of the C prototype, 0 = none).
 * They travel to the BPF program in the attach cookie, so that one program serves all functions of a
 * family. Ids are numbered by hand and are never reused: recordings hold them.
 * Sources of the positions: NVIDIA's nccl.h, cuda_runtime_api.h, cuda.h and AMD's rccl.h.
 */
#ifndef INGERO_API_FUNCTIONS_H
#define INGERO_API_FUNCTIONS_H

/* Which program handles a function. */
enum api_family {
	API_FAMILY_NONE = 0,
	API_NCCL_COLLECTIVE = 1,
	API_NCCL_GROUP_START = 2,
	API_NCCL_GROUP_END = 3,
	API_NCCL_COMM_INIT_RANK = 4, /* unique id by value: InitRank, InitRankConfig */
	API_NCCL_COMM_INIT_SCALABLE = 5,
	API_NCCL_COMM_INIT_ALL = 6,
	API_NCCL_COMM_SPLIT = 7,
	API_NCCL_COMM_SHRINK = 8,
	API_NCCL_COMM_GROW = 9,
	API_NCCL_COMM_END = 10, /* Destroy, Abort: the handle is gone afterwards */
	API_NCCL_COMM_CALL = 11, /* Finalize: counted, the handle lives on */
	API_NCCL_GET_UNIQUE_ID = 12,
	/* These are followed, not counted: */
	API_NCCL_COMM_POLL = 13, /* when non-blocking calls are done */
	API_CUDA_SET_DEVICE = 22, /* which device's default streams the thread means */
	API_CUDA_STREAM_END = 23, /* the handle may come again, for another stream */
	API_CUDA_COPY = 20,
	API_CUDA_STREAM_SYNC = 21,
};

/* Where the API lives; also the `source` label. */
enum api_source {
	API_SOURCE_NONE = 0,
	API_SOURCE_CUDA = 1,
	API_SOURCE_DRIVER = 2,
	API_SOURCE_NCCL = 3,
};

/* How a copy's size is found. */
enum api_layout {
	API_LAYOUT_ARGS = 0,        /* bytes argument, times the factor argument where one is named */
	API_LAYOUT_RT_3D = 1,       /* cudaMemcpy3DParms: extent at 128, kind at 152, arrays at 0 and 64 */
	API_LAYOUT_RT_3D_PEER = 2,  /* cudaMemcpy3DPeerParms: extent at 144, arrays at 0 and 72 */
	API_LAYOUT_DRV_2D = 3,      /* CUDA_MEMCPY2D: types at 16 and 72, width 112, height 120 */
	API_LAYOUT_DRV_3D = 4,      /* CUDA_MEMCPY3D and _PEER: types at 32 and 120, extent at 176 */
	API_LAYOUT_BATCH = 5,       /* bytes argument points to factor-argument many size_t */
	API_LAYOUT_BATCH_3D = 6,    /* bytes argument points to factor-argument many (none named: one)
				     * cudaMemcpy3DBatchOp: operand types at 0 and 40, extent at 80 */
};

/* Copy direction, the values of cudaMemcpyKind; `unknown` is ours. */
enum copy_direction {
	COPY_H2H = 0,
	COPY_H2D = 1,
	COPY_D2H = 2,
	COPY_D2D = 3,
	COPY_DEFAULT = 4,
	COPY_UNKNOWN = 5,
	COPY_DIRECTIONS = 6,
};

/* Cookie: bits 0-9 function id, then 4 bits each: bytes, factor, type, object, stream, peer, redop,
 * 4 bits fixed direction + 1, 1 bit "size is per rank", 3 bits layout. */
#define API_COOKIE_ID(cookie) ((unsigned int)((cookie) & 0x3ff))
#define API_COOKIE_BYTES(cookie) ((unsigned int)(((cookie) >> 10) & 0xf))
#define API_COOKIE_FACTOR(cookie) ((unsigned int)(((cookie) >> 14) & 0xf))
#define API_COOKIE_TYPE(cookie) ((unsigned int)(((cookie) >> 18) & 0xf))
#define API_COOKIE_OBJECT(cookie) ((unsigned int)(((cookie) >> 22) & 0xf))
#define API_COOKIE_STREAM(cookie) ((unsigned int)(((cookie) >> 26) & 0xf))
#define API_COOKIE_PEER(cookie) ((unsigned int)(((cookie) >> 30) & 0xf))
#define API_COOKIE_REDOP(cookie) ((unsigned int)(((cookie) >> 34) & 0xf))
#define API_COOKIE_DIRECTION(cookie) ((unsigned int)(((cookie) >> 38) & 0xf))
#define API_COOKIE_PER_RANK(cookie) ((unsigned int)(((cookie) >> 42) & 0x1))
#define API_COOKIE_LAYOUT(cookie) ((unsigned int)(((cookie) >> 43) & 0x7))

#define API_SHAPE(bytes, factor, type, object, stream, peer, redop, direction, per_rank, layout)     \
	(((unsigned long long)(bytes) << 10) | ((unsigned long long)(factor) << 14) |                 \
	 ((unsigned long long)(type) << 18) | ((unsigned long long)(object) << 22) |                  \
	 ((unsigned long long)(stream) << 26) | ((unsigned long long)(peer) << 30) |                  \
	 ((unsigned long long)(redop) << 34) | ((unsigned long long)(direction) << 38) |              \
	 ((unsigned long long)(per_rank) << 42) | ((unsigned long long)(layout) << 43))

/* count, datatype, communicator, stream, root or peer, reduction operator, per-rank size? */
#define SHAPE_COLL(count, type, comm, stream, peer, redop, per_rank)                                  \
	API_SHAPE(count, 0, type, comm, stream, peer, redop, 0, per_rank, API_LAYOUT_ARGS)
#define SHAPE_COMM(comm) API_SHAPE(0, 0, 0, comm, 0, 0, 0, 0, 0, API_LAYOUT_ARGS)
/* bytes (times factor), kind argument, stream */
#define SHAPE_COPY(bytes, factor, kind, stream)                                                       \
	API_SHAPE(bytes, factor, kind, 0, stream, 0, 0, 0, 0, API_LAYOUT_ARGS)
/* the function itself says the direction */
#define SHAPE_COPY_TO(direction, bytes, stream)                                                       \
	API_SHAPE(bytes, 0, 0, 0, stream, 0, 0, (direction) + 1, 0, API_LAYOUT_ARGS)
/* the parameters are a structure that the first argument points to */
#define SHAPE_COPY_STRUCT(layout, stream) API_SHAPE(0, 0, 0, 0, stream, 0, 0, 0, 0, layout)
#define SHAPE_COPY_BATCH(sizes, count, stream)                                                        \
	API_SHAPE(sizes, count, 0, 0, stream, 0, 0, COPY_UNKNOWN + 1, 0, API_LAYOUT_BATCH)
/* operations, their number (0: one) */
#define SHAPE_COPY_BATCH_3D(operations, count, stream)                                                \
	API_SHAPE(operations, count, 0, 0, stream, 0, 0, COPY_UNKNOWN + 1, 0, API_LAYOUT_BATCH_3D)
#define SHAPE_STREAM(stream) API_SHAPE(0, 0, 0, 0, stream, 0, 0, 0, 0, API_LAYOUT_ARGS)

/* X(id, symbol, operation label, family, source, shape) */
#define API_NCCL_FUNCTIONS(X)                                                                         \
	X(1, ncclAllReduce, ncclAllReduce, API_NCCL_COLLECTIVE, API_SOURCE_NCCL, SHAPE_COLL(3, 4, 6, 7, 0, 5, 0)) \
	X(2, ncclAllGather, ncclAllGather, API_NCCL_COLLECTIVE, API_SOURCE_NCCL, SHAPE_COLL(3, 4, 5, 6, 0, 0, 1)) \
	X(3, ncclReduceScatter, ncclReduceScatter, API_NCCL_COLLECTIVE, API_SOURCE_NCCL, SHAPE_COLL(3, 4, 6, 7, 0, 5, 1)) \
	X(4, ncclBcast, ncclBcast, API_NCCL_COLLECTIVE, API_SOURCE_NCCL, SHAPE_COLL(2, 3, 5, 6, 4, 0, 0)) \
	X(5, ncclBroadcast, ncclBroadcast, API_NCCL_COLLECTIVE, API_SOURCE_NCCL, SHAPE_COLL(3, 4, 6, 7, 5, 0, 0)) \
	X(6, ncclReduce, ncclReduce, API_NCCL_COLLECTIVE, API_SOURCE_NCCL, SHAPE_COLL(3, 4, 7, 8, 6, 5, 0)) \
	X(7, ncclSend, ncclSend, API_NCCL_COLLECTIVE, API_SOURCE_NCCL, SHAPE_COLL(2, 3, 5, 6, 4, 0, 0)) \
	X(8, ncclRecv, ncclRecv, API_NCCL_COLLECTIVE, API_SOURCE_NCCL, SHAPE_COLL(2, 3, 5, 6, 4, 0, 0)) \
	X(9, ncclAlltoAll, ncclAlltoAll, API_NCCL_COLLECTIVE, API_SOURCE_NCCL, SHAPE_COLL(3, 4, 5, 6, 0, 0, 1)) \
	X(10, ncclGather, ncclGather, API_NCCL_COLLECTIVE, API_SOURCE_NCCL, SHAPE_COLL(3, 4, 6, 7, 5, 0, 1)) \
	X(11, ncclScatter, ncclScatter, API_NCCL_COLLECTIVE, API_SOURCE_NCCL, SHAPE_COLL(3, 4, 6, 7, 5, 0, 1)) \
	/* RCCL's spelling */                                                                         \
	X(12, ncclAllToAll, ncclAlltoAll, API_NCCL_COLLECTIVE, API_SOURCE_NCCL, SHAPE_COLL(3, 4, 5, 6, 0, 0, 1)) \
	/* NCCL 2.31: the same arguments and a trailing config pointer */                             \
	X(13, ncclAllReduceConfig, ncclAllReduce, API_NCCL_COLLECTIVE, API_SOURCE_NCCL, SHAPE_COLL(3, 4, 6, 7, 0, 5, 0)) \
	X(14, ncclBroadcastConfig, ncclBroadcast, API_NCCL_COLLECTIVE, API_SOURCE_NCCL, SHAPE_COLL(3, 4, 6, 7, 5, 0, 0)) \
	X(15, ncclReduceConfig, ncclReduce, API_NCCL_COLLECTIVE, API_SOURCE_NCCL, SHAPE_COLL(3, 4, 7, 8, 6, 5, 0)) \
	X(16, ncclAllGatherConfig, ncclAllGather, API_NCCL_COLLECTIVE, API_SOURCE_NCCL, SHAPE_COLL(3, 4, 5, 6, 0, 0, 1)) \
	X(17, ncclReduceScatterConfig, ncclReduceScatter, API_NCCL_COLLECTIVE, API_SOURCE_NCCL, SHAPE_COLL(3, 4, 6, 7, 0, 5, 1)) \
	X(18, ncclAlltoAllConfig, ncclAlltoAll, API_NCCL_COLLECTIVE, API_SOURCE_NCCL, SHAPE_COLL(3, 4, 5, 6, 0, 0, 1)) \
	X(19, ncclGatherConfig, ncclGather, API_NCCL_COLLECTIVE, API_SOURCE_NCCL, SHAPE_COLL(3, 4, 6, 7, 5, 0, 1)) \
	X(20, ncclScatterConfig, ncclScatter, API_NCCL_COLLECTIVE, API_SOURCE_NCCL, SHAPE_COLL(3, 4, 6, 7, 5, 0, 1)) \
	X(30, ncclGroupStart, ncclGroupStart, API_NCCL_GROUP_START, API_SOURCE_NCCL, 0)               \
	X(31, ncclGroupEnd, ncclGroupEnd, API_NCCL_GROUP_END, API_SOURCE_NCCL, 0)                     \
	X(40, ncclCommInitRank, ncclCommInitRank, API_NCCL_COMM_INIT_RANK, API_SOURCE_NCCL, 0)        \
	X(41, ncclCommInitRankConfig, ncclCommInitRankConfig, API_NCCL_COMM_INIT_RANK, API_SOURCE_NCCL, 0) \
	X(42, ncclCommInitRankScalable, ncclCommInitRankScalable, API_NCCL_COMM_INIT_SCALABLE, API_SOURCE_NCCL, 0) \
	X(43, ncclCommInitAll, ncclCommInitAll, API_NCCL_COMM_INIT_ALL, API_SOURCE_NCCL, 0)           \
	X(44, ncclCommSplit, ncclCommSplit, API_NCCL_COMM_SPLIT, API_SOURCE_NCCL, SHAPE_COMM(1))      \
	X(45, ncclCommShrink, ncclCommShrink, API_NCCL_COMM_SHRINK, API_SOURCE_NCCL, SHAPE_COMM(1))   \
	X(46, ncclCommGrow, ncclCommGrow, API_NCCL_COMM_GROW, API_SOURCE_NCCL, SHAPE_COMM(1))         \
	X(47, ncclCommDestroy, ncclCommDestroy, API_NCCL_COMM_END, API_SOURCE_NCCL, SHAPE_COMM(1))    \
	X(48, ncclCommAbort, ncclCommAbort, API_NCCL_COMM_END, API_SOURCE_NCCL, SHAPE_COMM(1))        \
	X(49, ncclCommFinalize, ncclCommFinalize, API_NCCL_COMM_CALL, API_SOURCE_NCCL, SHAPE_COMM(1)) \
	X(50, ncclGetUniqueId, ncclGetUniqueId, API_NCCL_GET_UNIQUE_ID, API_SOURCE_NCCL, 0)           \
	X(51, ncclCommGetAsyncError, ncclCommGetAsyncError, API_NCCL_COMM_POLL, API_SOURCE_NCCL, SHAPE_COMM(1))

#define API_CUDA_FUNCTIONS(X)                                                                         \
	X(100, cudaMemcpy, cudaMemcpy, API_CUDA_COPY, API_SOURCE_CUDA, SHAPE_COPY(3, 0, 4, 0))        \
	X(101, cudaMemcpy_ptds, cudaMemcpy, API_CUDA_COPY, API_SOURCE_CUDA, SHAPE_COPY(3, 0, 4, 0))   \
	X(102, cudaMemcpyAsync, cudaMemcpyAsync, API_CUDA_COPY, API_SOURCE_CUDA, SHAPE_COPY(3, 0, 4, 5)) \
	X(103, cudaMemcpyAsync_ptsz, cudaMemcpyAsync, API_CUDA_COPY, API_SOURCE_CUDA, SHAPE_COPY(3, 0, 4, 5)) \
	X(104, cudaMemcpy2D, cudaMemcpy2D, API_CUDA_COPY, API_SOURCE_CUDA, SHAPE_COPY(5, 6, 7, 0))    \
	X(105, cudaMemcpy2D_ptds, cudaMemcpy2D, API_CUDA_COPY, API_SOURCE_CUDA, SHAPE_COPY(5, 6, 7, 0)) \
	X(106, cudaMemcpy2DAsync, cudaMemcpy2DAsync, API_CUDA_COPY, API_SOURCE_CUDA, SHAPE_COPY(5, 6, 7, 8)) \
	X(107, cudaMemcpy2DAsync_ptsz, cudaMemcpy2DAsync, API_CUDA_COPY, API_SOURCE_CUDA, SHAPE_COPY(5, 6, 7, 8)) \
	X(108, cudaMemcpy2DToArray, cudaMemcpy2DToArray, API_CUDA_COPY, API_SOURCE_CUDA, SHAPE_COPY(6, 7, 8, 0)) \
	X(109, cudaMemcpy2DToArray_ptds, cudaMemcpy2DToArray, API_CUDA_COPY, API_SOURCE_CUDA, SHAPE_COPY(6, 7, 8, 0)) \
	X(110, cudaMemcpy2DToArrayAsync, cudaMemcpy2DToArrayAsync, API_CUDA_COPY, API_SOURCE_CUDA, SHAPE_COPY(6, 7, 8, 9)) \
	X(111, cudaMemcpy2DToArrayAsync_ptsz, cudaMemcpy2DToArrayAsync, API_CUDA_COPY, API_SOURCE_CUDA, SHAPE_COPY(6, 7, 8, 9)) \
	X(112, cudaMemcpy2DFromArray, cudaMemcpy2DFromArray, API_CUDA_COPY, API_SOURCE_CUDA, SHAPE_COPY(6, 7, 8, 0)) \
	X(113, cudaMemcpy2DFromArray_ptds, cudaMemcpy2DFromArray, API_CUDA_COPY, API_SOURCE_CUDA, SHAPE_COPY(6, 7, 8, 0)) \
	X(114, cudaMemcpy2DFromArrayAsync, cudaMemcpy2DFromArrayAsync, API_CUDA_COPY, API_SOURCE_CUDA, SHAPE_COPY(6, 7, 8, 9)) \
	X(115, cudaMemcpy2DFromArrayAsync_ptsz, cudaMemcpy2DFromArrayAsync, API_CUDA_COPY, API_SOURCE_CUDA, SHAPE_COPY(6, 7, 8, 9)) \
	X(116, cudaMemcpyToArray, cudaMemcpyToArray, API_CUDA_COPY, API_SOURCE_CUDA, SHAPE_COPY(5, 0, 6, 0)) \
	X(117, cudaMemcpyToArray_ptds, cudaMemcpyToArray, API_CUDA_COPY, API_SOURCE_CUDA, SHAPE_COPY(5, 0, 6, 0)) \
	X(118, cudaMemcpyToArrayAsync, cudaMemcpyToArrayAsync, API_CUDA_COPY, API_SOURCE_CUDA, SHAPE_COPY(5, 0, 6, 7)) \
	X(119, cudaMemcpyToArrayAsync_ptsz, cudaMemcpyToArrayAsync, API_CUDA_COPY, API_SOURCE_CUDA, SHAPE_COPY(5, 0, 6, 7)) \
	X(120, cudaMemcpyFromArray, cudaMemcpyFromArray, API_CUDA_COPY, API_SOURCE_CUDA, SHAPE_COPY(5, 0, 6, 0)) \
	X(121, cudaMemcpyFromArray_ptds, cudaMemcpyFromArray, API_CUDA_COPY, API_SOURCE_CUDA, SHAPE_COPY(5, 0, 6, 0)) \
	X(122, cudaMemcpyFromArrayAsync, cudaMemcpyFromArrayAsync, API_CUDA_COPY, API_SOURCE_CUDA, SHAPE_COPY(5, 0, 6, 7)) \
	X(123, cudaMemcpyFromArrayAsync_ptsz, cudaMemcpyFromArrayAsync, API_CUDA_COPY, API_SOURCE_CUDA, SHAPE_COPY(5, 0, 6, 7)) \
	X(124, cudaMemcpy3D, cudaMemcpy3D, API_CUDA_COPY, API_SOURCE_CUDA, SHAPE_COPY_STRUCT(API_LAYOUT_RT_3D, 0)) \
	X(125, cudaMemcpy3D_ptds, cudaMemcpy3D, API_CUDA_COPY, API_SOURCE_CUDA, SHAPE_COPY_STRUCT(API_LAYOUT_RT_3D, 0)) \
	X(126, cudaMemcpy3DAsync, cudaMemcpy3DAsync, API_CUDA_COPY, API_SOURCE_CUDA, SHAPE_COPY_STRUCT(API_LAYOUT_RT_3D, 2)) \
	X(127, cudaMemcpy3DAsync_ptsz, cudaMemcpy3DAsync, API_CUDA_COPY, API_SOURCE_CUDA, SHAPE_COPY_STRUCT(API_LAYOUT_RT_3D, 2)) \
	X(128, cudaMemcpy3DPeer, cudaMemcpy3DPeer, API_CUDA_COPY, API_SOURCE_CUDA, SHAPE_COPY_STRUCT(API_LAYOUT_RT_3D_PEER, 0)) \
	X(129, cudaMemcpy3DPeer_ptds, cudaMemcpy3DPeer, API_CUDA_COPY, API_SOURCE_CUDA, SHAPE_COPY_STRUCT(API_LAYOUT_RT_3D_PEER, 0)) \
	X(130, cudaMemcpy3DPeerAsync, cudaMemcpy3DPeerAsync, API_CUDA_COPY, API_SOURCE_CUDA, SHAPE_COPY_STRUCT(API_LAYOUT_RT_3D_PEER, 2)) \
	X(131, cudaMemcpy3DPeerAsync_ptsz, cudaMemcpy3DPeerAsync, API_CUDA_COPY, API_SOURCE_CUDA, SHAPE_COPY_STRUCT(API_LAYOUT_RT_3D_PEER, 2)) \
	X(132, cudaMemcpyPeer, cudaMemcpyPeer, API_CUDA_COPY, API_SOURCE_CUDA, SHAPE_COPY_TO(COPY_D2D, 5, 0)) \
	X(133, cudaMemcpyPeerAsync, cudaMemcpyPeerAsync, API_CUDA_COPY, API_SOURCE_CUDA, SHAPE_COPY_TO(COPY_D2D, 5, 6)) \
	X(134, cudaMemcpyToSymbol, cudaMemcpyToSymbol, API_CUDA_COPY, API_SOURCE_CUDA, SHAPE_COPY(3, 0, 5, 0)) \
	X(135, cudaMemcpyToSymbol_ptds, cudaMemcpyToSymbol, API_CUDA_COPY, API_SOURCE_CUDA, SHAPE_COPY(3, 0, 5, 0)) \
	X(136, cudaMemcpyToSymbolAsync, cudaMemcpyToSymbolAsync, API_CUDA_COPY, API_SOURCE_CUDA, SHAPE_COPY(3, 0, 5, 6)) \
	X(137, cudaMemcpyToSymbolAsync_ptsz, cudaMemcpyToSymbolAsync, API_CUDA_COPY, API_SOURCE_CUDA, SHAPE_COPY(3, 0, 5, 6)) \
	X(138, cudaMemcpyFromSymbol, cudaMemcpyFromSymbol, API_CUDA_COPY, API_SOURCE_CUDA, SHAPE_COPY(3, 0, 5, 0)) \
	X(139, cudaMemcpyFromSymbol_ptds, cudaMemcpyFromSymbol, API_CUDA_COPY, API_SOURCE_CUDA, SHAPE_COPY(3, 0, 5, 0)) \
	X(140, cudaMemcpyFromSymbolAsync, cudaMemcpyFromSymbolAsync, API_CUDA_COPY, API_SOURCE_CUDA, SHAPE_COPY(3, 0, 5, 6)) \
	X(141, cudaMemcpyFromSymbolAsync_ptsz, cudaMemcpyFromSymbolAsync, API_CUDA_COPY, API_SOURCE_CUDA, SHAPE_COPY(3, 0, 5, 6)) \
	/* the stream stands at 8 (CUDA 13) or 9 (12.8, 12.9): not read */                            \
	X(142, cudaMemcpyBatchAsync, cudaMemcpyBatchAsync, API_CUDA_COPY, API_SOURCE_CUDA, SHAPE_COPY_BATCH(3, 4, 0)) \
	X(143, cudaMemcpyBatchAsync_ptsz, cudaMemcpyBatchAsync, API_CUDA_COPY, API_SOURCE_CUDA, SHAPE_COPY_BATCH(3, 4, 0)) \
	X(144, cudaMemcpyArrayToArray, cudaMemcpyArrayToArray, API_CUDA_COPY, API_SOURCE_CUDA, SHAPE_COPY(7, 0, 8, 0)) \
	X(145, cudaMemcpyArrayToArray_ptds, cudaMemcpyArrayToArray, API_CUDA_COPY, API_SOURCE_CUDA, SHAPE_COPY(7, 0, 8, 0)) \
	X(146, cudaMemcpy2DArrayToArray, cudaMemcpy2DArrayToArray, API_CUDA_COPY, API_SOURCE_CUDA, SHAPE_COPY(7, 8, 9, 0)) \
	X(147, cudaMemcpy2DArrayToArray_ptds, cudaMemcpy2DArrayToArray, API_CUDA_COPY, API_SOURCE_CUDA, SHAPE_COPY(7, 8, 9, 0)) \
	X(148, cudaMemcpyWithAttributesAsync, cudaMemcpyWithAttributesAsync, API_CUDA_COPY, API_SOURCE_CUDA, SHAPE_COPY_TO(COPY_UNKNOWN, 3, 5)) \
	X(149, cudaMemcpyWithAttributesAsync_ptsz, cudaMemcpyWithAttributesAsync, API_CUDA_COPY, API_SOURCE_CUDA, SHAPE_COPY_TO(COPY_UNKNOWN, 3, 5)) \
	X(150, cudaMemcpy3DWithAttributesAsync, cudaMemcpy3DWithAttributesAsync, API_CUDA_COPY, API_SOURCE_CUDA, SHAPE_COPY_BATCH_3D(1, 0, 3)) \
	X(151, cudaMemcpy3DWithAttributesAsync_ptsz, cudaMemcpy3DWithAttributesAsync, API_CUDA_COPY, API_SOURCE_CUDA, SHAPE_COPY_BATCH_3D(1, 0, 3)) \
	/* the stream stands at 4 (CUDA 13) or 5 (12.8, 12.9): not read */                           \
	X(152, cudaMemcpy3DBatchAsync, cudaMemcpy3DBatchAsync, API_CUDA_COPY, API_SOURCE_CUDA, SHAPE_COPY_BATCH_3D(2, 1, 0)) \
	X(153, cudaMemcpy3DBatchAsync_ptsz, cudaMemcpy3DBatchAsync, API_CUDA_COPY, API_SOURCE_CUDA, SHAPE_COPY_BATCH_3D(2, 1, 0)) \
	X(200, cudaStreamSynchronize, cudaStreamSynchronize, API_CUDA_STREAM_SYNC, API_SOURCE_CUDA, SHAPE_STREAM(1)) \
	X(201, cudaStreamSynchronize_ptsz, cudaStreamSynchronize, API_CUDA_STREAM_SYNC, API_SOURCE_CUDA, SHAPE_STREAM(1)) \
	X(202, cudaSetDevice, cudaSetDevice, API_CUDA_SET_DEVICE, API_SOURCE_CUDA, 0)                 \
	X(203, cudaStreamDestroy, cudaStreamDestroy, API_CUDA_STREAM_END, API_SOURCE_CUDA, SHAPE_STREAM(1))

#define API_DRIVER_FUNCTIONS(X)                                                                       \
	X(300, cuMemcpy, cuMemcpy, API_CUDA_COPY, API_SOURCE_DRIVER, SHAPE_COPY_TO(COPY_DEFAULT, 3, 0)) \
	X(301, cuMemcpy_ptds, cuMemcpy, API_CUDA_COPY, API_SOURCE_DRIVER, SHAPE_COPY_TO(COPY_DEFAULT, 3, 0)) \
	X(302, cuMemcpyAsync, cuMemcpyAsync, API_CUDA_COPY, API_SOURCE_DRIVER, SHAPE_COPY_TO(COPY_DEFAULT, 3, 4)) \
	X(303, cuMemcpyAsync_ptsz, cuMemcpyAsync, API_CUDA_COPY, API_SOURCE_DRIVER, SHAPE_COPY_TO(COPY_DEFAULT, 3, 4)) \
	X(304, cuMemcpyHtoD_v2, cuMemcpyHtoD, API_CUDA_COPY, API_SOURCE_DRIVER, SHAPE_COPY_TO(COPY_H2D, 3, 0)) \
	X(305, cuMemcpyHtoD_v2_ptds, cuMemcpyHtoD, API_CUDA_COPY, API_SOURCE_DRIVER, SHAPE_COPY_TO(COPY_H2D, 3, 0)) \
	X(306, cuMemcpyHtoDAsync_v2, cuMemcpyHtoDAsync, API_CUDA_COPY, API_SOURCE_DRIVER, SHAPE_COPY_TO(COPY_H2D, 3, 4)) \
	X(307, cuMemcpyHtoDAsync_v2_ptsz, cuMemcpyHtoDAsync, API_CUDA_COPY, API_SOURCE_DRIVER, SHAPE_COPY_TO(COPY_H2D, 3, 4)) \
	X(308, cuMemcpyDtoH_v2, cuMemcpyDtoH, API_CUDA_COPY, API_SOURCE_DRIVER, SHAPE_COPY_TO(COPY_D2H, 3, 0)) \
	X(309, cuMemcpyDtoH_v2_ptds, cuMemcpyDtoH, API_CUDA_COPY, API_SOURCE_DRIVER, SHAPE_COPY_TO(COPY_D2H, 3, 0)) \
	X(310, cuMemcpyDtoHAsync_v2, cuMemcpyDtoHAsync, API_CUDA_COPY, API_SOURCE_DRIVER, SHAPE_COPY_TO(COPY_D2H, 3, 4)) \
	X(311, cuMemcpyDtoHAsync_v2_ptsz, cuMemcpyDtoHAsync, API_CUDA_COPY, API_SOURCE_DRIVER, SHAPE_COPY_TO(COPY_D2H, 3, 4)) \
	X(312, cuMemcpyDtoD_v2, cuMemcpyDtoD, API_CUDA_COPY, API_SOURCE_DRIVER, SHAPE_COPY_TO(COPY_D2D, 3, 0)) \
	X(313, cuMemcpyDtoD_v2_ptds, cuMemcpyDtoD, API_CUDA_COPY, API_SOURCE_DRIVER, SHAPE_COPY_TO(COPY_D2D, 3, 0)) \
	X(314, cuMemcpyDtoDAsync_v2, cuMemcpyDtoDAsync, API_CUDA_COPY, API_SOURCE_DRIVER, SHAPE_COPY_TO(COPY_D2D, 3, 4)) \
	X(315, cuMemcpyDtoDAsync_v2_ptsz, cuMemcpyDtoDAsync, API_CUDA_COPY, API_SOURCE_DRIVER, SHAPE_COPY_TO(COPY_D2D, 3, 4)) \
	X(316, cuMemcpyPeer, cuMemcpyPeer, API_CUDA_COPY, API_SOURCE_DRIVER, SHAPE_COPY_TO(COPY_D2D, 5, 0)) \
	X(317, cuMemcpyPeerAsync, cuMemcpyPeerAsync, API_CUDA_COPY, API_SOURCE_DRIVER, SHAPE_COPY_TO(COPY_D2D, 5, 6)) \
	X(318, cuMemcpy2D_v2, cuMemcpy2D, API_CUDA_COPY, API_SOURCE_DRIVER, SHAPE_COPY_STRUCT(API_LAYOUT_DRV_2D, 0)) \
	X(319, cuMemcpy2DUnaligned_v2, cuMemcpy2DUnaligned, API_CUDA_COPY, API_SOURCE_DRIVER, SHAPE_COPY_STRUCT(API_LAYOUT_DRV_2D, 0)) \
	X(320, cuMemcpy2DAsync_v2, cuMemcpy2DAsync, API_CUDA_COPY, API_SOURCE_DRIVER, SHAPE_COPY_STRUCT(API_LAYOUT_DRV_2D, 2)) \
	X(321, cuMemcpy3D_v2, cuMemcpy3D, API_CUDA_COPY, API_SOURCE_DRIVER, SHAPE_COPY_STRUCT(API_LAYOUT_DRV_3D, 0)) \
	X(322, cuMemcpy3DAsync_v2, cuMemcpy3DAsync, API_CUDA_COPY, API_SOURCE_DRIVER, SHAPE_COPY_STRUCT(API_LAYOUT_DRV_3D, 2)) \
	X(323, cuStreamSynchronize, cuStreamSynchronize, API_CUDA_STREAM_SYNC, API_SOURCE_DRIVER, SHAPE_STREAM(1)) \
	X(324, cuStreamSynchronize_ptsz, cuStreamSynchronize, API_CUDA_STREAM_SYNC, API_SOURCE_DRIVER, SHAPE_STREAM(1)) \
	X(325, cuMemcpy2D_v2_ptds, cuMemcpy2D, API_CUDA_COPY, API_SOURCE_DRIVER, SHAPE_COPY_STRUCT(API_LAYOUT_DRV_2D, 0)) \
	X(326, cuMemcpy2DUnaligned_v2_ptds, cuMemcpy2DUnaligned, API_CUDA_COPY, API_SOURCE_DRIVER, SHAPE_COPY_STRUCT(API_LAYOUT_DRV_2D, 0)) \
	X(327, cuMemcpy2DAsync_v2_ptsz, cuMemcpy2DAsync, API_CUDA_COPY, API_SOURCE_DRIVER, SHAPE_COPY_STRUCT(API_LAYOUT_DRV_2D, 2)) \
	X(328, cuMemcpy3D_v2_ptds, cuMemcpy3D, API_CUDA_COPY, API_SOURCE_DRIVER, SHAPE_COPY_STRUCT(API_LAYOUT_DRV_3D, 0)) \
	X(329, cuMemcpy3DAsync_v2_ptsz, cuMemcpy3DAsync, API_CUDA_COPY, API_SOURCE_DRIVER, SHAPE_COPY_STRUCT(API_LAYOUT_DRV_3D, 2)) \
	X(330, cuMemcpyPeer_ptds, cuMemcpyPeer, API_CUDA_COPY, API_SOURCE_DRIVER, SHAPE_COPY_TO(COPY_D2D, 5, 0)) \
	X(331, cuMemcpyPeerAsync_ptsz, cuMemcpyPeerAsync, API_CUDA_COPY, API_SOURCE_DRIVER, SHAPE_COPY_TO(COPY_D2D, 5, 6)) \
	X(332, cuMemcpy3DPeer, cuMemcpy3DPeer, API_CUDA_COPY, API_SOURCE_DRIVER, SHAPE_COPY_STRUCT(API_LAYOUT_DRV_3D, 0)) \
	X(333, cuMemcpy3DPeer_ptds, cuMemcpy3DPeer, API_CUDA_COPY, API_SOURCE_DRIVER, SHAPE_COPY_STRUCT(API_LAYOUT_DRV_3D, 0)) \
	X(334, cuMemcpy3DPeerAsync, cuMemcpy3DPeerAsync, API_CUDA_COPY, API_SOURCE_DRIVER, SHAPE_COPY_STRUCT(API_LAYOUT_DRV_3D, 2)) \
	X(335, cuMemcpy3DPeerAsync_ptsz, cuMemcpy3DPeerAsync, API_CUDA_COPY, API_SOURCE_DRIVER, SHAPE_COPY_STRUCT(API_LAYOUT_DRV_3D, 2)) \
	/* arrays are on the device; offsets and sizes count bytes */                                \
	X(336, cuMemcpyHtoA_v2, cuMemcpyHtoA, API_CUDA_COPY, API_SOURCE_DRIVER, SHAPE_COPY_TO(COPY_H2D, 4, 0)) \
	X(337, cuMemcpyHtoA_v2_ptds, cuMemcpyHtoA, API_CUDA_COPY, API_SOURCE_DRIVER, SHAPE_COPY_TO(COPY_H2D, 4, 0)) \
	X(338, cuMemcpyDtoA_v2, cuMemcpyDtoA, API_CUDA_COPY, API_SOURCE_DRIVER, SHAPE_COPY_TO(COPY_D2D, 4, 0)) \
	X(339, cuMemcpyDtoA_v2_ptds, cuMemcpyDtoA, API_CUDA_COPY, API_SOURCE_DRIVER, SHAPE_COPY_TO(COPY_D2D, 4, 0)) \
	X(340, cuMemcpyAtoD_v2, cuMemcpyAtoD, API_CUDA_COPY, API_SOURCE_DRIVER, SHAPE_COPY_TO(COPY_D2D, 4, 0)) \
	X(341, cuMemcpyAtoD_v2_ptds, cuMemcpyAtoD, API_CUDA_COPY, API_SOURCE_DRIVER, SHAPE_COPY_TO(COPY_D2D, 4, 0)) \
	X(342, cuMemcpyAtoH_v2, cuMemcpyAtoH, API_CUDA_COPY, API_SOURCE_DRIVER, SHAPE_COPY_TO(COPY_D2H, 4, 0)) \
	X(343, cuMemcpyAtoH_v2_ptds, cuMemcpyAtoH, API_CUDA_COPY, API_SOURCE_DRIVER, SHAPE_COPY_TO(COPY_D2H, 4, 0)) \
	X(344, cuMemcpyAtoA_v2, cuMemcpyAtoA, API_CUDA_COPY, API_SOURCE_DRIVER, SHAPE_COPY_TO(COPY_D2D, 5, 0)) \
	X(345, cuMemcpyAtoA_v2_ptds, cuMemcpyAtoA, API_CUDA_COPY, API_SOURCE_DRIVER, SHAPE_COPY_TO(COPY_D2D, 5, 0)) \
	X(346, cuMemcpyHtoAAsync_v2, cuMemcpyHtoAAsync, API_CUDA_COPY, API_SOURCE_DRIVER, SHAPE_COPY_TO(COPY_H2D, 4, 5)) \
	X(347, cuMemcpyHtoAAsync_v2_ptsz, cuMemcpyHtoAAsync, API_CUDA_COPY, API_SOURCE_DRIVER, SHAPE_COPY_TO(COPY_H2D, 4, 5)) \
	X(348, cuMemcpyAtoHAsync_v2, cuMemcpyAtoHAsync, API_CUDA_COPY, API_SOURCE_DRIVER, SHAPE_COPY_TO(COPY_D2H, 4, 5)) \
	X(349, cuMemcpyAtoHAsync_v2_ptsz, cuMemcpyAtoHAsync, API_CUDA_COPY, API_SOURCE_DRIVER, SHAPE_COPY_TO(COPY_D2H, 4, 5)) \
	/* before _v2 an index of the failed copy precedes the stream or the flags */                \
	X(350, cuMemcpyBatchAsync, cuMemcpyBatchAsync, API_CUDA_COPY, API_SOURCE_DRIVER, SHAPE_COPY_BATCH(3, 4, 9)) \
	X(351, cuMemcpyBatchAsync_ptsz, cuMemcpyBatchAsync, API_CUDA_COPY, API_SOURCE_DRIVER, SHAPE_COPY_BATCH(3, 4, 9)) \
	X(352, cuMemcpyBatchAsync_v2, cuMemcpyBatchAsync, API_CUDA_COPY, API_SOURCE_DRIVER, SHAPE_COPY_BATCH(3, 4, 8)) \
	X(353, cuMemcpyBatchAsync_v2_ptsz, cuMemcpyBatchAsync, API_CUDA_COPY, API_SOURCE_DRIVER, SHAPE_COPY_BATCH(3, 4, 8)) \
	X(354, cuMemcpy3DBatchAsync, cuMemcpy3DBatchAsync, API_CUDA_COPY, API_SOURCE_DRIVER, SHAPE_COPY_BATCH_3D(2, 1, 5)) \
	X(355, cuMemcpy3DBatchAsync_ptsz, cuMemcpy3DBatchAsync, API_CUDA_COPY, API_SOURCE_DRIVER, SHAPE_COPY_BATCH_3D(2, 1, 5)) \
	X(356, cuMemcpy3DBatchAsync_v2, cuMemcpy3DBatchAsync, API_CUDA_COPY, API_SOURCE_DRIVER, SHAPE_COPY_BATCH_3D(2, 1, 4)) \
	X(357, cuMemcpy3DBatchAsync_v2_ptsz, cuMemcpy3DBatchAsync, API_CUDA_COPY, API_SOURCE_DRIVER, SHAPE_COPY_BATCH_3D(2, 1, 4)) \
	X(358, cuMemcpyWithAttributesAsync, cuMemcpyWithAttributesAsync, API_CUDA_COPY, API_SOURCE_DRIVER, SHAPE_COPY_TO(COPY_UNKNOWN, 3, 5)) \
	X(359, cuMemcpyWithAttributesAsync_ptsz, cuMemcpyWithAttributesAsync, API_CUDA_COPY, API_SOURCE_DRIVER, SHAPE_COPY_TO(COPY_UNKNOWN, 3, 5)) \
	X(360, cuMemcpy3DWithAttributesAsync, cuMemcpy3DWithAttributesAsync, API_CUDA_COPY, API_SOURCE_DRIVER, SHAPE_COPY_BATCH_3D(1, 0, 3)) \
	X(361, cuMemcpy3DWithAttributesAsync_ptsz, cuMemcpy3DWithAttributesAsync, API_CUDA_COPY, API_SOURCE_DRIVER, SHAPE_COPY_BATCH_3D(1, 0, 3)) \
	X(362, cuStreamDestroy_v2, cuStreamDestroy, API_CUDA_STREAM_END, API_SOURCE_DRIVER, SHAPE_STREAM(1)) \
	X(363, cuStreamDestroy, cuStreamDestroy, API_CUDA_STREAM_END, API_SOURCE_DRIVER, SHAPE_STREAM(1))

#define API_FUNCTIONS(X) API_NCCL_FUNCTIONS(X) API_CUDA_FUNCTIONS(X) API_DRIVER_FUNCTIONS(X)

#endif
