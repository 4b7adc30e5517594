// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>

#include "program/session.h"
#include "stubs/nccl_abi.h"

namespace ingero::workload {

constexpr std::array<unsigned, NCCL_DATATYPES> kDatatypeBytes = {1, 1, 4, 4, 8, 8,
                                                                 2, 4, 8, 2, 1, 1};

enum class Collective {
  kAllReduce,
  kAllGather,
  kReduceScatter,
  kBcast,
  kBroadcast,
  kReduce,
  kSend,
  kRecv,
  kAlltoAll,
  kGather,
  kScatter,
};
constexpr int kCollectives = 11;

// A communicator as its creator knows it: the numbers come from the arguments, not the library.
struct Communicator {
  ncclComm_t handle = nullptr;
  int rank = 0;
  int nranks = 1;
};

// `parent` is null, `id` is null where the communicator has none of its own.
void record_comm(Session& session, const char* created_by, const Communicator& comm,
                 const ncclUniqueId* id, ncclComm_t parent);

// Message size as nccl-tests defines it.
std::uint64_t message_bytes(Collective kind, std::size_t count, ncclDataType_t type, int nranks);

// One counted call. In RCCL, AlltoAll is found by RCCL's spelling.
int collective(Session& session, const Communicator& comm, Collective kind, std::size_t count,
               ncclDataType_t type);
// The eight functions of NCCL 2.31 with a configuration as last argument.
void config_collectives(Session& session, const Communicator& comm, std::size_t count,
                        ncclDataType_t type);

// ncclGetUniqueId, or by --id-file the one that rank 0 wrote there (first thread only).
ncclUniqueId shared_unique_id(Session& session);
// The communicator that most scenarios use: InitRankConfig with --rank, --nranks, --comm-name;
// ncclCommInitRank where the library has no Config. A null handle where it failed.
Communicator create_comm(Session& session);
void destroy_comm(Session& session, const Communicator& comm);

ncclConfig_t make_config(const char* comm_name, int blocking);

}  // namespace ingero::workload
