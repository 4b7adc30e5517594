// SPDX-License-Identifier: Apache-2.0
#include "discover/socket_scanner.h"

#include "bpf/wire.h"
#include "discover/iterator_records.h"

namespace ingero::discover {
namespace {

constexpr auto kMaxTime = std::chrono::milliseconds(100);
constexpr std::size_t kMaxHolders = 1 << 20;

}  // namespace

Result<std::vector<SocketHolder>> SocketScanner::scan() const {
  constexpr const char* kName = "iter/task_file";
  if (handles_.held_sockets_program < 0)
    return fail({"find holders of sockets", kName, "this kernel has no such iterator", ""});
  auto iterator = open_iterator(handles_.held_sockets_program, kName, {});
  if (!iterator) return fail(iterator.error());
  std::vector<SocketHolder> holders;
  const auto read = read_iterator<socket_holder_record>(
      iterator->get(), kName, {kMaxTime, kMaxHolders}, [&](const socket_holder_record& record) {
        holders.push_back({record.inode, {record.tgid, record.process_start_ns}});
      });
  if (!read) return fail(read.error());
  if (!*read) holders.clear();  // who holds a socket alone is known only where all were asked
  return holders;
}

}  // namespace ingero::discover
