// SPDX-License-Identifier: Apache-2.0
#include "program/nccl_calls.h"

#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>

namespace ingero::workload {
namespace {

constexpr int kSum = 0, kRoot = 0, kPeer = 1;

char send_buffer[4096], receive_buffer[4096];  // never read: no data is moved

void sleep_ms(long milliseconds) {
  const timespec pause{0, milliseconds * 1'000'000};
  nanosleep(&pause, nullptr);
}

bool write_id(const std::string& path, const ncclUniqueId& id) {
  const std::string fresh = path + "." + std::to_string(getpid());
  std::ofstream(fresh, std::ios::binary).write(id.internal, sizeof(id.internal));
  return std::rename(fresh.c_str(), path.c_str()) == 0;
}

bool read_id(const std::string& path, ncclUniqueId& id) {
  while (!stop_requested()) {
    std::ifstream file(path, std::ios::binary);
    if (file.read(id.internal, sizeof(id.internal))) return true;
    sleep_ms(5);
  }
  return false;
}

}  // namespace

void record_comm(Session& session, const char* created_by, const Communicator& comm,
                 const ncclUniqueId* id, ncclComm_t parent) {
  CommRecord record{};
  std::snprintf(record.created_by, sizeof(record.created_by), "%s", created_by);
  record.pointer = reinterpret_cast<std::uint64_t>(comm.handle);
  record.parent = reinterpret_cast<std::uint64_t>(parent);
  record.rank = comm.rank;
  record.nranks = comm.nranks;
  record.pid = getpid();
  record.has_id = id != nullptr;
  if (id) record.id = *id;
  session.context().tally->add_comm(record);
}

std::uint64_t message_bytes(Collective kind, std::size_t count, ncclDataType_t type, int nranks) {
  const std::uint64_t own = count * kDatatypeBytes.at(static_cast<unsigned>(type));
  switch (kind) {
    case Collective::kAllGather:
    case Collective::kReduceScatter:
    case Collective::kAlltoAll:
    case Collective::kGather:
    case Collective::kScatter: return own * static_cast<unsigned>(nranks);
    case Collective::kAllReduce:
    case Collective::kBcast:
    case Collective::kBroadcast:
    case Collective::kReduce:
    case Collective::kSend:
    case Collective::kRecv: return own;
  }
  return own;
}

int collective(Session& session, const Communicator& comm, Collective kind, std::size_t count,
               ncclDataType_t type) {
  const Library& nccl = session.context().nccl;
  const std::uint64_t bytes = message_bytes(kind, count, type, comm.nranks);
  const void* from = send_buffer;
  void* to = receive_buffer;
  void* stream = session.stream();
  const auto reducing = [&](auto f) {
    return session.call(f, "", bytes, from, to, count, type, kSum, comm.handle, stream);
  };
  const auto rooted = [&](auto f) {
    return session.call(f, "", bytes, from, to, count, type, kRoot, comm.handle, stream);
  };
  const auto gathering = [&](auto f) {
    return session.call(f, "", bytes, from, to, count, type, comm.handle, stream);
  };
  switch (kind) {
    case Collective::kAllReduce: return reducing(WORKLOAD_FUNCTION(nccl, ncclAllReduce));
    case Collective::kReduceScatter: return reducing(WORKLOAD_FUNCTION(nccl, ncclReduceScatter));
    case Collective::kAllGather: return gathering(WORKLOAD_FUNCTION(nccl, ncclAllGather));
    case Collective::kAlltoAll:
      if (const auto rccl = WORKLOAD_FUNCTION(nccl, ncclAllToAll); rccl.pointer)
        return gathering(rccl);
      return gathering(WORKLOAD_FUNCTION(nccl, ncclAlltoAll));
    case Collective::kBroadcast: return rooted(WORKLOAD_FUNCTION(nccl, ncclBroadcast));
    case Collective::kGather: return rooted(WORKLOAD_FUNCTION(nccl, ncclGather));
    case Collective::kScatter: return rooted(WORKLOAD_FUNCTION(nccl, ncclScatter));
    case Collective::kReduce:
      return session.call(WORKLOAD_FUNCTION(nccl, ncclReduce), "", bytes, from, to, count, type,
                          kSum, kRoot, comm.handle, stream);
    case Collective::kBcast:
      return session.call(WORKLOAD_FUNCTION(nccl, ncclBcast), "", bytes, to, count, type, kRoot,
                          comm.handle, stream);
    case Collective::kSend:
      return session.call(WORKLOAD_FUNCTION(nccl, ncclSend), "", bytes, from, count, type, kPeer,
                          comm.handle, stream);
    case Collective::kRecv:
      return session.call(WORKLOAD_FUNCTION(nccl, ncclRecv), "", bytes, to, count, type, kPeer,
                          comm.handle, stream);
  }
  return Session::kNotCalled;
}

void config_collectives(Session& session, const Communicator& comm, std::size_t count,
                        ncclDataType_t type) {
  const Library& nccl = session.context().nccl;
  const void* from = send_buffer;
  void* to = receive_buffer;
  void* stream = session.stream();
  const void* config = nullptr;
  const auto operand = [&](auto f, Collective kind, int sixth) {
    session.call(f, "", message_bytes(kind, count, type, comm.nranks), from, to, count, type, sixth,
                 comm.handle, stream, config);
  };
  const auto plain = [&](auto f, Collective kind) {
    session.call(f, "", message_bytes(kind, count, type, comm.nranks), from, to, count, type,
                 comm.handle, stream, config);
  };
  operand(WORKLOAD_FUNCTION(nccl, ncclAllReduceConfig), Collective::kAllReduce, kSum);
  operand(WORKLOAD_FUNCTION(nccl, ncclReduceScatterConfig), Collective::kReduceScatter, kSum);
  operand(WORKLOAD_FUNCTION(nccl, ncclBroadcastConfig), Collective::kBroadcast, kRoot);
  operand(WORKLOAD_FUNCTION(nccl, ncclGatherConfig), Collective::kGather, kRoot);
  operand(WORKLOAD_FUNCTION(nccl, ncclScatterConfig), Collective::kScatter, kRoot);
  plain(WORKLOAD_FUNCTION(nccl, ncclAllGatherConfig), Collective::kAllGather);
  plain(WORKLOAD_FUNCTION(nccl, ncclAlltoAllConfig), Collective::kAlltoAll);
  session.call(WORKLOAD_FUNCTION(nccl, ncclReduceConfig), "",
               message_bytes(Collective::kReduce, count, type, comm.nranks), from, to, count, type,
               kSum, kRoot, comm.handle, stream, config);
}

ncclUniqueId shared_unique_id(Session& session) {
  const Options& options = session.context().options;
  ncclUniqueId id{};
  const bool shared = !options.id_file.empty() && session.thread() == 0;
  if (shared && options.rank != 0) {
    read_id(options.id_file, id);
    return id;
  }
  session.call_always(WORKLOAD_FUNCTION(session.context().nccl, ncclGetUniqueId), &id);
  if (shared && !write_id(options.id_file, id)) std::perror("ingero_workload: write --id-file");
  return id;
}

ncclConfig_t make_config(const char* comm_name, int blocking) {
  ncclConfig_t config;
  std::memset(&config, 0, sizeof(config));
  config.size = sizeof(config);
  config.magic = NCCL_CONFIG_MAGIC;
  config.version = 22809;
  config.blocking = blocking;
  config.cga_cluster_size = config.min_ctas = config.max_ctas = NCCL_UNDEFINED;
  config.split_share = config.traffic_class = config.collnet_enable = NCCL_UNDEFINED;
  config.cta_policy = config.shrink_share = config.nvls_ctas = NCCL_UNDEFINED;
  config.channels_per_net_peer = config.nvlink_centric_sched = NCCL_UNDEFINED;
  config.comm_name = comm_name;
  return config;
}

Communicator create_comm(Session& session) {
  const Context& context = session.context();
  if (!context.nccl) return {};
  const ncclUniqueId id = shared_unique_id(session);
  Communicator comm{nullptr, context.options.rank, context.options.nranks};
  ncclConfig_t config = make_config(context.options.comm_name.c_str(), 1);
  const auto with_config = WORKLOAD_FUNCTION(context.nccl, ncclCommInitRankConfig);
  const auto plain = WORKLOAD_FUNCTION(context.nccl, ncclCommInitRank);
  const int result =
      with_config.pointer
          ? session.call_always(with_config, &comm.handle, comm.nranks, id, comm.rank, &config)
          : session.call_always(plain, &comm.handle, comm.nranks, id, comm.rank);
  if (result != NCCL_SUCCESS) return {};
  record_comm(session, with_config.pointer ? with_config.name : plain.name, comm, &id, nullptr);
  return comm;
}

void destroy_comm(Session& session, const Communicator& comm) {
  if (comm.handle)
    session.call_always(WORKLOAD_FUNCTION(session.context().nccl, ncclCommDestroy), comm.handle);
}

}  // namespace ingero::workload
