/* SPDX-License-Identifier: Apache-2.0 */
/* libcudart stub: every copy function, no copy. With STUB_NESTED the plain copies and the stream
 * wait call the driver's public functions, as a runtime that was given their addresses does. */
#include "cuda_abi.h"
#include "stub_enter.h"

#define STUB_TWINS(name, suffix, args)                                                             \
	STUB_EXPORT int name args                                                                  \
	{                                                                                          \
		return stub_enter();                                                               \
	}                                                                                          \
	STUB_EXPORT int name##_##suffix args                                                       \
	{                                                                                          \
		return stub_enter();                                                               \
	}
#define STUB_PLAIN(name, suffix, args)                                                             \
	STUB_EXPORT int name args                                                                  \
	{                                                                                          \
		return stub_enter();                                                               \
	}

CUDA_TWIN_FUNCTIONS(STUB_TWINS)
CUDA_PLAIN_FUNCTIONS(STUB_PLAIN)
#ifndef STUB_NESTED
CUDA_NESTING_FUNCTIONS(STUB_TWINS)
#endif

static __thread int current_device;

STUB_EXPORT int cudaSetDevice(int device)
{
	int result = stub_enter();
	if (result == 0)
		current_device = device;
	return result;
}

STUB_EXPORT int cudaGetDevice(int *device)
{
	*device = current_device;
	return 0;
}

STUB_EXPORT int cudaStreamDestroy(void *stream)
{
	return stub_enter();
}

STUB_EXPORT int cudaRuntimeGetVersion(int *version)
{
	if (!version)
		return 1;
	*version = 13000;
	return 0;
}
