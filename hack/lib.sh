# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Shared by the scripts in hack/: sourced, never run. The caller has `set -euo pipefail`.

repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
script=hack/$(basename "$0")
export INGERO_CACHE=${INGERO_CACHE:-/var/cache/ingero}

say() { echo "$script: $*"; }

# die MESSAGE: a mistake of the caller or of the host; exit status 2.
die() {
  echo "$script: $*" >&2
  exit 2
}

is_root() { [ "$(id -u)" = 0 ]; }

has_package() { dpkg-query -W -f '${Status}' "$1" 2>/dev/null | grep -q '^install ok installed'; }

# build_folder PRESET: where CMakePresets.json puts it.
build_folder() {
  if [ "$1" = release ]; then echo "$repository/build"; else echo "$repository/build/$1"; fi
}

# What a container or a minimal host may lack; left as it is where it is mounted already.
mount_kernel_filesystems() {
  if ! findmnt -t tracefs >/dev/null && [ -d /sys/kernel/tracing ]; then
    mount -t tracefs tracefs /sys/kernel/tracing || say "no tracefs: bpftrace may not work"
  fi
  if ! findmnt -t bpf >/dev/null && [ -d /sys/fs/bpf ]; then
    mount -t bpf bpf /sys/fs/bpf || say "no bpffs"
  fi
  if ! findmnt -t cgroup,cgroup2 >/dev/null && [ -d /sys/fs/cgroup ]; then
    mount -t cgroup2 cgroup2 /sys/fs/cgroup || say "no cgroup tree: containers cannot be made"
  fi
}
