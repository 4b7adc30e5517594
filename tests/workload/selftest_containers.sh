#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Part of selftest.sh: three containers over one lower layer, all alive at the same time.
# Started by bpftrace, so that its probe is there before the calls: selftest_containers.sh BIN DIR
set -euo pipefail

dir=$2
pids=()
# However this ends, the containers end.
trap 'touch "$dir/out/start" "$dir/out/finish"; wait' EXIT
for i in 1 2 3; do
  "$1/container_run" --cgroup "/ingero-selftest-$$/container-$i" --lower "$dir/lower" --pid-ns \
    --share "$dir/out:/out" --pid-file "$dir/out/host-pid-$i" -- /usr/bin/ingero_workload \
    --nccl /stubs/libnccl.so.2 --cudart /stubs/libcudart.so.13 --scenario allreduce \
    --calls $((100 * i)) --bytes 4096 --tally "/out/tally-$i.json" \
    --ready-file "/out/ready-$i" --start-file /out/start --hold-file /out/finish &
  pids+=($!)
done
for i in 1 2 3; do
  timeout 30 bash -c \
    "until [ -e $dir/out/ready-$i ] && [ -e $dir/out/host-pid-$i ]; do sleep 0.05; done"
  grep -h "ingero-selftest-.*/container-$i\$" "/proc/$(cat "$dir/out/host-pid-$i")/cgroup" \
    >>"$dir/out/cgroups"
  stat -L -c %d "/proc/$(cat "$dir/out/host-pid-$i")/root/stubs/libnccl.so.2" >>"$dir/out/devices"
done
touch "$dir/out/start" "$dir/out/finish"
for i in "${pids[@]}"; do wait "$i"; done
