#!/usr/bin/env bash
# One binary with and without rdma-core: its libraries are opened when a device is asked for, and
# nothing needs them to start.
source "$(dirname "$0")/lib.sh"
need readelf
for program in "$braid" "$braidd"; do
  needed=$(readelf -d "$program" | grep NEEDED)
  grep -q 'libc\.so' <<<"$needed" || fail "readelf tells no libraries of $program: $needed"
  if grep -E 'ibverbs|rdmacm|mlx|efa' <<<"$needed"; then
    fail "$program does not start where rdma-core is not installed"
  fi
done
