/* SPDX-License-Identifier: Apache-2.0 */
/* Communicators of the NCCL stub: when a handle and its content become visible is as in the real
 * library (2.14 and newer). */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "nccl_stub.h"

static __thread int group_depth;
static __thread struct comm_job *group_jobs;
static __thread int next_split_rank = -1;
static __thread int next_split_nranks = -1;

STUB_EXPORT void stub_set_split_result(int rank, int nranks)
{
	next_split_rank = rank;
	next_split_nranks = nranks;
}

bool comm_is_valid(ncclComm_t comm)
{
	return comm && comm->start_magic == NCCL_STRUCT_MAGIC &&
	       comm->end_magic == NCCL_STRUCT_MAGIC;
}

void comm_count_operation(ncclComm_t comm, enum sequence sequence)
{
	__atomic_add_fetch(&comm->operations, 1, __ATOMIC_RELAXED);
	if (sequence != SEQUENCE_NONE)
		__atomic_add_fetch(&comm->sequence[sequence], 1, __ATOMIC_RELAXED);
}

ncclComm_t comm_allocate(const ncclConfig_t *config)
{
	ncclComm_t comm = calloc(1, sizeof(*comm));
	if (!comm)
		return NULL;
	comm->start_magic = comm->end_magic = NCCL_STRUCT_MAGIC;
	comm->config.blocking = 1;
	if (config)
		memcpy(&comm->config, config,
		       config->size < sizeof(*config) ? config->size : sizeof(*config));
	return comm;
}

static void job_run(const struct comm_job *job)
{
	ncclComm_t comm = job->comm;
	comm->magic = job->magic;
	comm->comm_hash = job->comm_hash;
	comm->rank = job->rank;
	comm->nranks = job->nranks;
#ifdef STUB_FORKED
	comm->other_hash = ~job->comm_hash;
	comm->other_nranks = 32;
#endif
	comm->cuda_device = comm->nvml_device = job->device;
	comm->bus_id = 0x1000 * (job->device + 1);
	__atomic_store_n(&comm->async_result, NCCL_SUCCESS, __ATOMIC_RELEASE);
	if (job->publish)
		*job->publish = comm;
}

static void *job_thread(void *argument)
{
	struct comm_job *job = argument;
	struct timespec pause = {.tv_nsec = 2000000};
	nanosleep(&pause, NULL);
	job_run(job);
	free(job);
	return NULL;
}

static ncclResult_t job_in_background(const struct comm_job *job)
{
	pthread_t thread;
	struct comm_job *copy = malloc(sizeof(*copy));
	if (!copy)
		return NCCL_SYSTEM_ERROR;
	*copy = *job;
	copy->comm->async_result = NCCL_IN_PROGRESS;
	if (pthread_create(&thread, NULL, job_thread, copy) != 0) {
		free(copy);
		return NCCL_SYSTEM_ERROR;
	}
	pthread_detach(thread);
	return NCCL_IN_PROGRESS;
}

ncclResult_t job_submit(struct comm_job job)
{
	struct comm_job *copy;
	if (group_depth == 0) {
		if (job.comm->config.blocking == 0)
			return job_in_background(&job);
		job_run(&job);
		return NCCL_SUCCESS;
	}
	copy = malloc(sizeof(*copy));
	if (!copy)
		return NCCL_SYSTEM_ERROR;
	*copy = job;
	copy->next = group_jobs;
	group_jobs = copy;
	return NCCL_SUCCESS;
}

ncclResult_t group_end(void)
{
	ncclResult_t result = NCCL_SUCCESS;
	if (group_depth == 0)
		return NCCL_INVALID_USAGE;
	if (--group_depth > 0)
		return NCCL_SUCCESS;
	while (group_jobs) {
		struct comm_job *job = group_jobs;
		group_jobs = job->next;
		if (job->comm->config.blocking == 0)
			result = job_in_background(job);
		else
			job_run(job);
		free(job);
	}
	return result;
}

NCCL_API(GroupStart)(void)
{
	int result = stub_enter();
	if (result == 0)
		group_depth++;
	return result;
}
NCCL_ALIAS(GroupStart)

ncclResult_t ncclGroupEndInternal(void);

/* A failing end still closes the group, as a caller has no other way to leave it. */
NCCL_API(GroupEnd)(void)
{
	int injected = stub_enter();
	ncclResult_t result = ncclGroupEndInternal();
	return injected ? injected : result;
}
NCCL_ALIAS(GroupEnd)

/* Like the real one: 8 random bytes, then the address of the bootstrap listener. */
NCCL_API(GetUniqueId)(ncclUniqueId *id)
{
	static const unsigned char address[] = {2, 0, 0x8f, 0x89, 192, 0, 2, 2};
	int result = stub_enter();
	if (!id)
		return NCCL_INVALID_ARGUMENT;
	if (result)
		return result;
	memset(id, 0, sizeof(*id));
	if (getrandom(id->internal, 8, 0) != 8)
		return NCCL_SYSTEM_ERROR;
	memcpy(id->internal + 8, address, sizeof(address));
	if (getrandom(id->internal + 10, 2, 0) != 2)
		return NCCL_SYSTEM_ERROR;
	return NCCL_SUCCESS;
}
NCCL_ALIAS(GetUniqueId)

/* h = h * 33 ^ byte over the id, as NCCL before 2.26 names a communicator. */
static uint64_t hash_bytes(uint64_t hash, const void *bytes, size_t size)
{
	const signed char *cursor = bytes;
	for (size_t i = 0; i < size; i++)
		hash = (hash * 33) ^ (uint64_t)(int64_t)cursor[i];
	return hash;
}

static ncclResult_t init_rank(ncclComm_t *newcomm, int nranks, const ncclUniqueId *id, int rank,
			      const ncclConfig_t *config, int device)
{
	struct comm_job job = {.rank = rank, .nranks = nranks, .device = device};
	if (!newcomm || nranks < 1 || rank < 0 || rank >= nranks)
		return NCCL_INVALID_ARGUMENT;
	job.comm = comm_allocate(config);
	if (!job.comm)
		return NCCL_SYSTEM_ERROR;
	memcpy(&job.magic, id->internal, sizeof(job.magic));
	job.comm_hash = hash_bytes(5381, id, sizeof(*id));
	*newcomm = job.comm; /* visible at once, also inside a group; the content is not */
	return job_submit(job);
}

NCCL_API(CommInitRank)(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank)
{
	int result = stub_enter();
	return result ? result : init_rank(comm, nranks, &id, rank, NULL, stub_control.device);
}
NCCL_ALIAS(CommInitRank)

NCCL_API(CommInitRankConfig)
(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank, ncclConfig_t *config)
{
	int result = stub_enter();
	return result ? result : init_rank(comm, nranks, &id, rank, config, stub_control.device);
}
NCCL_ALIAS(CommInitRankConfig)

NCCL_API(CommInitRankScalable)
(ncclComm_t *comm, int nranks, int rank, int ids_count, ncclUniqueId *ids, ncclConfig_t *config)
{
	int result = stub_enter();
	if (!ids || ids_count < 1)
		return NCCL_INVALID_ARGUMENT;
	return result ? result : init_rank(comm, nranks, ids, rank, config, stub_control.device);
}
NCCL_ALIAS(CommInitRankScalable)

/* Calls the public GetUniqueId through the PLT, but no public init function, as the real one. */
NCCL_API(CommInitAll)(ncclComm_t *comms, int devices_count, const int *devices)
{
	ncclUniqueId id;
	int result = stub_enter();
	if (!comms || devices_count < 1)
		return NCCL_INVALID_ARGUMENT;
	if (result == 0)
		result = ncclGetUniqueId(&id);
	for (int i = 0; i < devices_count && result == 0; i++)
		result =
			init_rank(&comms[i], devices_count, &id, i, NULL, devices ? devices[i] : i);
	return result;
}
NCCL_ALIAS(CommInitAll)

/* The handle of a split or shrink is stored when its job is done, never before. */
static ncclResult_t derive(ncclComm_t parent, ncclComm_t *newcomm, const ncclConfig_t *config,
			   int color, int rank, int nranks)
{
	struct comm_job job = {.publish = newcomm, .rank = rank, .nranks = nranks};
	job.comm = comm_allocate(config);
	if (!job.comm)
		return NCCL_SYSTEM_ERROR;
	job.magic = parent->magic + (uint64_t)(unsigned int)color + 1;
	job.comm_hash = hash_bytes(hash_bytes(5381, &parent->comm_hash, 8), &color, sizeof(color));
	job.device = parent->cuda_device;
	return job_submit(job);
}

NCCL_API(CommSplit)
(ncclComm_t comm, int color, int key, ncclComm_t *newcomm, ncclConfig_t *config)
{
	int result = stub_enter();
	int rank = next_split_rank;
	int nranks = next_split_nranks;
	(void)key;
	next_split_rank = next_split_nranks = -1;
	if (!comm_is_valid(comm) || !newcomm)
		return NCCL_INVALID_ARGUMENT;
	if (result)
		return result;
	*newcomm = NULL;
	if (color == -1)
		return NCCL_SUCCESS;
	if (nranks < 1) {
		rank = comm->rank;
		nranks = comm->nranks;
	}
	return derive(comm, newcomm, config, color, rank, nranks);
}
NCCL_ALIAS(CommSplit)

NCCL_API(CommShrink)
(ncclComm_t comm, int *excluded, int excluded_count, ncclComm_t *newcomm, ncclConfig_t *config,
 int flags)
{
	int result = stub_enter();
	int below = 0;
	(void)flags;
	if (!comm_is_valid(comm) || !newcomm || !excluded || excluded_count < 1)
		return NCCL_INVALID_ARGUMENT;
	for (int i = 0; i < excluded_count; i++) {
		if (excluded[i] == comm->rank)
			return NCCL_INVALID_ARGUMENT;
		below += excluded[i] < comm->rank;
	}
	if (result)
		return result;
	*newcomm = NULL;
	return derive(comm, newcomm, config, 0, comm->rank - below, comm->nranks - excluded_count);
}
NCCL_ALIAS(CommShrink)

/* Existing ranks pass rank -1 and keep theirs; new ones have no parent. */
NCCL_API(CommGrow)
(ncclComm_t comm, int nranks, const ncclUniqueId *id, int rank, ncclComm_t *newcomm,
 ncclConfig_t *config)
{
	int result = stub_enter();
	ncclUniqueId own = {{0}};
	if ((!comm_is_valid(comm) && rank < 0) || !newcomm)
		return NCCL_INVALID_ARGUMENT;
	if (result)
		return result;
	if (id)
		own = *id;
	else if (comm)
		memcpy(own.internal, &comm->magic, sizeof(comm->magic));
	return init_rank(newcomm, nranks, &own, rank < 0 ? comm->rank : rank, config,
			 comm ? comm->cuda_device : stub_control.device);
}
NCCL_ALIAS(CommGrow)

static ncclResult_t end_comm(ncclComm_t comm)
{
	int result = stub_enter();
	if (!comm_is_valid(comm))
		return NCCL_INVALID_ARGUMENT;
	if (result)
		return result;
	comm->rank = comm->nranks = -1;
	comm->start_magic = comm->end_magic = 0;
	free(comm);
	return NCCL_SUCCESS;
}

NCCL_API(CommDestroy)(ncclComm_t comm)
{
	return end_comm(comm);
}
NCCL_ALIAS(CommDestroy)

NCCL_API(CommAbort)(ncclComm_t comm)
{
	return end_comm(comm);
}
NCCL_ALIAS(CommAbort)

NCCL_API(CommFinalize)(ncclComm_t comm)
{
	int result = stub_enter();
	return comm_is_valid(comm) ? result : NCCL_INVALID_ARGUMENT;
}
NCCL_ALIAS(CommFinalize)
