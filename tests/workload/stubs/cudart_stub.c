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

STUB_EXPORT int cudaRuntimeGetVersion(int *version)
{
	if (!version)
		return 1;
	*version = 13000;
	return 0;
}
