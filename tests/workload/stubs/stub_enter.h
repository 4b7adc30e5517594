/* SPDX-License-Identifier: Apache-2.0 */
/* What each stub function does first. Included by the stub sources only. */
#ifndef INGERO_WORKLOAD_STUB_ENTER_H
#define INGERO_WORKLOAD_STUB_ENTER_H

#include <stddef.h>

#include "stub_control.h"

#define STUB_EXPORT __attribute__((visibility("default")))
#define STUB_HIDDEN __attribute__((visibility("hidden")))

/* Protected: with several stubs in one process each steers itself only. */
extern __attribute__((visibility("protected"))) struct stub_control stub_control;

/* Counts the call, spins, jumps away where asked to; returns the code the call shall return. */
STUB_HIDDEN int stub_enter(void);

#endif
