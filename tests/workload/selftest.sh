#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Checks the workload itself: selftest.sh BUILD_DIR/workload
# 1. first instructions and symbols of the stubs; 2. results of the scenarios against numbers worked
# out elsewhere; 3. as root: counts of real uprobes; 4. as root: three containers over one lower.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
bin=$(cd "${1:?usage: selftest.sh WORKLOAD_DIR}" && pwd)
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

fail() { echo "selftest: $*" >&2; exit 1; }

workload() { # VARIANT SCENARIO [OPTION]...
  local variant=$1 scenario=$2
  shift 2
  local cudart=$bin/stubs/$variant/libcudart.so.13
  [ "$scenario" != nested ] || cudart=$bin/stubs/nested/libcudart.so.13
  timeout 60 "$bin/ingero_workload" --nccl "$bin/stubs/$variant/libnccl.so.2" --cudart "$cudart" \
    --cuda "$bin/stubs/$variant/libcuda.so.1" --scenario "$scenario" \
    --tally "$tmp/$scenario.json" "$@"
}

check_scenarios() { # VARIANT
  local checks="$here/selftest_checks.py"
  scenario() { # SCENARIO "OPTIONS" "VALUES"
    # shellcheck disable=SC2086
    workload "$variant" "$1" $2 && python3 "$checks" tally "$1" "$tmp/$1.json" $3
  }
  local variant=$1
  scenario allreduce "--calls 1000 --threads 3 --bytes 4096" "calls=1000 threads=3 bytes=4096"
  scenario datatypes "--nranks 16" "nranks=16"
  scenario copies "--calls 3" "calls=3"
  scenario errors "--calls 6" "calls=6"
  scenario forkstorm "--processes 200" "processes=200"
  for name in mixed memcpy inits nested fork exec threads longjmp seccomp; do
    scenario "$name" "" ""
  done
}

# Number behind @name in bpftrace's output.
counted() { sed -n "s/^@$1: //p" "$tmp/bpftrace"; }

check_uprobes() {
  local stubs=$bin/stubs/push
  local command="$bin/ingero_workload --nccl $stubs/libnccl.so.2 --cudart $stubs/libcudart.so.13"
  command+=" --scenario threads --calls 20 --threads 4 --tally $tmp/probed.json"
  timeout 120 bpftrace -c "$command" -e "
    uprobe:$stubs/libnccl.so.2:ncclReduce { @reduce = count(); }
    uretprobe:$stubs/libnccl.so.2:ncclReduce { @reduced = count(); }
    uprobe:$stubs/libnccl.so.2:ncclBroadcast { @broadcast = count(); }
    uprobe:$stubs/libcudart.so.13:cudaMemcpy2D { @bytes = sum(arg4 * arg5); }" \
    >"$tmp/bpftrace" 2>"$tmp/bpftrace.err" || fail "bpftrace: $(cat "$tmp/bpftrace.err")"
  [ "$(counted reduce)" = 80 ] || fail "ncclReduce: $(counted reduce) entries of 80"
  [ "$(counted reduced)" = 80 ] || fail "ncclReduce: $(counted reduced) returns of 80"
  # Each Bcast is a nested Broadcast: 80 of its own and 80 inside.
  [ "$(counted broadcast)" = 160 ] || fail "ncclBroadcast: $(counted broadcast) entries of 160"
  local bytes=$((80 * 48 * (640 + 641 + 642 + 643 + 644)))
  [ "$(counted bytes)" = $bytes ] || fail "cudaMemcpy2D: $(counted bytes) bytes of $bytes"
}

check_containers() {
  mkdir -p "$tmp/out"
  chmod 755 "$tmp"
  "$here/container/build_root.sh" "$tmp/lower" "$bin/ingero_workload" "$bin/stubs/push:/stubs"
  timeout 120 bpftrace -c "/bin/bash $here/selftest_containers.sh $bin $tmp" \
    -e "uprobe:$tmp/lower/stubs/libnccl.so.2:ncclAllReduce { @all = count(); }" \
    >"$tmp/bpftrace" 2>"$tmp/bpftrace.err" || fail "bpftrace: $(cat "$tmp/bpftrace.err")"
  local i
  for i in 1 2 3; do
    python3 "$here/selftest_checks.py" tally allreduce "$tmp/out/tally-$i.json" \
      calls=$((100 * i)) threads=1 bytes=4096
  done
  [ "$(sort -u "$tmp/out/devices" | wc -l)" = 3 ] ||
    fail "overlay devices: $(cat "$tmp/out/devices")"
  [ "$(wc -l <"$tmp/out/cgroups")" -ge 3 ] || fail "cgroups seen: $(cat "$tmp/out/cgroups")"
  # The probe sits on the lower file, once: it sees the calls of all three.
  [ "$(counted all)" = 600 ] || fail "ncclAllReduce in three containers: $(counted all) of 600"
  local left
  left=$(find /sys/fs/cgroup -maxdepth 3 -type d -name 'ingero-selftest-*' 2>/dev/null)
  [ -z "$left" ] || fail "cgroups left behind: $left"
  local status=0
  "$bin/container_run" --cgroup "/ingero-selftest-$$/plain" --no-root -- bash -c 'exit 7' ||
    status=$?
  [ $status = 7 ] || fail "exit status 7 came out as $status"
}

python3 "$here/selftest_checks.py" elf "$bin"
for variant in push endbr; do
  [ ! -d "$bin/stubs/$variant" ] || check_scenarios "$variant"
done
echo "selftest: symbols and scenarios are right"
if [ "$(id -u)" != 0 ] || ! command -v bpftrace >/dev/null; then
  echo "selftest: no root or no bpftrace: uprobes and containers not checked"
  exit 77
fi
check_uprobes
check_containers
echo "selftest: uprobe counts and containers are right"
