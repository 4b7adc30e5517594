#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Assembles a root directory that many containers can share as their overlay's lower layer:
#   build_root.sh DIR PROGRAM [SOURCE:DESTINATION]...
# PROGRAM becomes /usr/bin/<name>; with it come the shared libraries that it needs, at their own
# paths. Each SOURCE (file or directory) is copied to DESTINATION inside.
set -euo pipefail

if [ $# -lt 2 ]; then
  sed -n '3,6p' "$0" >&2
  exit 2
fi
root=$1
program=$2
shift 2

mkdir -p "$root"/{usr/bin,proc,dev,tmp,out,etc}
cp "$program" "$root/usr/bin/"

# Libraries are put under the names by which the loader looks for them; on hosts where /lib is a
# link to usr/lib the root gets plain directories, which serves as well.
copy_needed() {
  ldd "$1" 2>/dev/null | grep -o '/[^ ]*' | while read -r library; do
    [ -e "$root$library" ] || install -D -m 755 "$(realpath "$library")" "$root$library"
  done
}
copy_needed "$program"

for pair in "$@"; do
  source=${pair%%:*}
  destination=$root${pair#*:}
  mkdir -p "$(dirname "$destination")"
  cp -rL "$source" "$destination"
  if [ -f "$source" ]; then
    copy_needed "$source"
  else
    find "$source" -name '*.so*' -type f | while read -r library; do copy_needed "$library"; done
  fi
done
