/* SPDX-License-Identifier: Apache-2.0 */
/* The runtime functions that go through the driver: libcuda is found as the real runtime finds it,
 * by dlopen of its soname. */
#include <dlfcn.h>

#include "cuda_abi.h"
#include "stub_enter.h"

enum { CUDA_ERROR_INSUFFICIENT_DRIVER = 35 };

typedef int copy_fn(unsigned long long dst, unsigned long long src, size_t count);
typedef int async_copy_fn(unsigned long long dst, unsigned long long src, size_t count,
			  void *stream);
typedef int stream_fn(void *stream);

/* Index: cudaMemcpyKind; without a direction the driver infers it. */
static const char *const sync_names[] = {"cuMemcpy", "cuMemcpyHtoD_v2", "cuMemcpyDtoH_v2",
					 "cuMemcpyDtoD_v2", "cuMemcpy"};
static const char *const async_names[] = {"cuMemcpyAsync", "cuMemcpyHtoDAsync_v2",
					  "cuMemcpyDtoHAsync_v2", "cuMemcpyDtoDAsync_v2",
					  "cuMemcpyAsync"};
static void *sync_functions[5];
static void *async_functions[5];
static void *stream_function;

__attribute__((constructor)) static void find_driver(void)
{
	void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
	if (!driver)
		return;
	for (int kind = 0; kind < 5; kind++) {
		sync_functions[kind] = dlsym(driver, sync_names[kind]);
		async_functions[kind] = dlsym(driver, async_names[kind]);
	}
	stream_function = dlsym(driver, "cuStreamSynchronize");
}

static int copy(void *dst, const void *src, size_t count, int kind)
{
	int result = stub_enter();
	copy_fn *function = kind >= 0 && kind < 5 ? (copy_fn *)sync_functions[kind] : NULL;
	if (!function)
		return CUDA_ERROR_INSUFFICIENT_DRIVER;
	return result ? result : function((size_t)dst, (size_t)src, count);
}

static int copy_async(void *dst, const void *src, size_t count, int kind, void *stream)
{
	int result = stub_enter();
	async_copy_fn *function =
		kind >= 0 && kind < 5 ? (async_copy_fn *)async_functions[kind] : NULL;
	if (!function)
		return CUDA_ERROR_INSUFFICIENT_DRIVER;
	return result ? result : function((size_t)dst, (size_t)src, count, stream);
}

static int synchronize(void *stream)
{
	int result = stub_enter();
	if (!stream_function)
		return CUDA_ERROR_INSUFFICIENT_DRIVER;
	return result ? result : ((stream_fn *)stream_function)(stream);
}

STUB_EXPORT int cudaMemcpy(void *dst, const void *src, size_t count, int kind)
{
	return copy(dst, src, count, kind);
}

STUB_EXPORT int cudaMemcpy_ptds(void *dst, const void *src, size_t count, int kind)
{
	return copy(dst, src, count, kind);
}

STUB_EXPORT int cudaMemcpyAsync(void *dst, const void *src, size_t count, int kind, void *stream)
{
	return copy_async(dst, src, count, kind, stream);
}

STUB_EXPORT int cudaMemcpyAsync_ptsz(void *dst, const void *src, size_t count, int kind,
				     void *stream)
{
	return copy_async(dst, src, count, kind, stream);
}

STUB_EXPORT int cudaStreamSynchronize(void *stream)
{
	return synchronize(stream);
}

STUB_EXPORT int cudaStreamSynchronize_ptsz(void *stream)
{
	return synchronize(stream);
}
