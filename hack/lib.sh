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

# private_apt DIRECTORY "ARCHITECTURE..." SUITE...: from now on apt works in DIRECTORY, with Debian's SUITEs for
# the architectures, the first as the own one: nothing is installed, the host's lists stay as they are.
private_apt() {
  local directory=$1 architectures=$2 key=/usr/share/keyrings/debian-archive-keyring.gpg suite archive
  shift 2
  mkdir -p "$directory"/etc/{preferences.d,apt.conf.d} "$directory"/state/lists/partial \
    "$directory"/cache/archives/partial
  : >"$directory/state/status"
  for suite in "$@"; do
    archive=http://deb.debian.org/debian
    [ "$suite" = "${suite%-security}" ] || archive=$archive-security
    echo "deb [arch=${architectures// /,} signed-by=$key] $archive $suite main"
  done >"$directory/etc/sources.list"
  cat >"$directory/apt.conf" <<CONF
Dir::Etc "$directory/etc"; Dir::Etc::sourcelist "$directory/etc/sources.list"; Dir::Etc::sourceparts "-";
Dir::State "$directory/state"; Dir::State::status "$directory/state/status"; Dir::Cache "$directory/cache";
APT::Architecture "${architectures%% *}"; APT::Architectures {"${architectures// /\";\"}";};
APT::Install-Recommends "false"; APT::Sandbox::User "root"; Debug::NoLocking "true";
Acquire::Languages "none"; Acquire::Check-Valid-Until "false"; Acquire::Retries "3";
CONF
  export APT_CONFIG=$directory/apt.conf
  apt-get update -qq >"$directory/update" 2>&1 ||
    say "not all package lists could be read: $(tail -n 1 "$directory/update")"
}
