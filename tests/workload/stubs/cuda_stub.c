/* SPDX-License-Identifier: Apache-2.0 */
/* libcuda stub: the driver's copy functions, no copy. */
#include "cuda_abi.h"
#include "stub_enter.h"

#define STUB_ONE(name, args)                                                                       \
	STUB_EXPORT int name args                                                                  \
	{                                                                                          \
		return stub_enter();                                                               \
	}
#define STUB_TWINS(name, suffix, args)                                                             \
	STUB_ONE(name, args)                                                                       \
	STUB_ONE(name##_##suffix, args)

CU_TWIN_FUNCTIONS(STUB_TWINS)

STUB_EXPORT int cuStreamDestroy(void *stream)
{
	return stub_enter();
}

STUB_EXPORT int cuStreamDestroy_v2(void *stream)
{
	return stub_enter();
}

STUB_EXPORT int cuDriverGetVersion(int *version)
{
	if (!version)
		return 1;
	*version = 13000;
	return 0;
}
