// SPDX-License-Identifier: Apache-2.0
#include "discover/socket_scanner.h"

#include <bpf/bpf.h>
#include <linux/bpf.h>

#include "base/unique_fd.h"
#include "bpf/wire.h"
#include "discover/iterator_records.h"

namespace ingero::discover {

Result<std::vector<SocketHolder>> SocketScanner::scan() const {
  constexpr const char* kName = "iter/task_file";
  if (handles_.held_sockets_program < 0)
    return fail({"find holders of sockets", kName, "this kernel has no such iterator", ""});
  bpf_link_create_opts options{};
  options.sz = sizeof(options);
  UniqueFd link(bpf_link_create(handles_.held_sockets_program, 0, BPF_TRACE_ITER, &options));
  if (!link) return fail_errno("create iterator", kName, "needs CAP_BPF, CAP_PERFMON");
  UniqueFd iterator(bpf_iter_create(link.get()));
  if (!iterator) return fail_errno("open iterator", kName);
  std::vector<SocketHolder> holders;
  const auto read = read_iterator<socket_holder_record>(
      iterator.get(), kName, [&](const socket_holder_record& record) {
        holders.push_back({record.inode, {record.tgid, record.process_start_ns}});
      });
  if (!read) return fail(read.error());
  return holders;
}

}  // namespace ingero::discover
