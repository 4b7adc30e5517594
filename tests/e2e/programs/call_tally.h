/* SPDX-License-Identifier: Apache-2.0 */
/* What the programs of this folder share: libraries, their own count of calls, waiting for the start. */
#ifndef INGERO_CALL_TALLY_H
#define INGERO_CALL_TALLY_H

/* Libraries as the command line names them. */
extern void *nccl, *cudart, *cuda;

/* PROGRAM SCENARIO NCCL_SO CUDART_SO CUDA_SO TALLY [READY_FILE START_FILE]: loads the libraries, says that
 * it is ready, waits for the start. Returns the scenario. */
const char* tally_begin(int argc, char** argv);
/* Writes TALLY in the form of ingero_workload's. */
void tally_end(char** argv);

/* One call that returned; `bytes` is what it may count for. Hands `result` on. */
int tell(const char* function, const char* direction, unsigned long long bytes, int result);
/* A copy that returned; its arguments do not tell how much it moves. */
int tell_unsized(const char* function, const char* direction, int result);
/* Calls that the agent sees begin, and not end. */
void tell_unreturned(const char* function, const char* direction, unsigned long long calls);

/* Address in a library; ends the program where it is missing. */
void* symbol(void* library, const char* name);

#define FUNCTION(library, name) ((__typeof__(&name))symbol(library, #name))

#endif
