#!/usr/bin/env bash
# Once requests flow, neither the daemon behind a kernel device nor its server takes a page fault:
# memory may be short just then. Of programs without sanitizers, whose shadows fault.
source "$(dirname "$0")/lib.sh"
need_root
need fio python3
[[ -e /dev/fuse && -e /dev/loop-control ]] || skip "needs /dev/fuse and /dev/loop-control"
if grep -qE '__(asan|tsan|ubsan)_' "$braidd"; then
  skip "the programs have sanitizers"
fi

mkdir "$work/root"
truncate -s 256M "$work/root/disk.img"
start_server "$work/root"
start_daemon
device=$(ctl map "127.0.0.1:$port/disk.img" --json | field device)

# Minor and major faults so far, in both processes.
faults() {
  cat "/proc/$server_pid/stat" "/proc/$daemon_pid/stat" | sed 's/.*) //' |
    awk '{ faults += $8 + $10 } END { print faults }'
}
# use_disk SIZES DEPTH
use_disk() {
  local rw
  for rw in randwrite randread; do
    fio --name="$rw" --filename="$device" --rw="$rw" --bsrange="$1" --iodepth="$2" --direct=1 \
      --ioengine=libaio --size=256M --fsync=64 --norandommap --io_size=256M --output=/dev/null ||
      fail "fio $rw"
  done
}
# Buffers are locked as they are first used: more of them than below, to their ends.
use_disk 1M-1M 32
use_disk 1M-1M 32
# Each page of a buffer may have one in both processes when it is first used, on a loaded machine
# late; a line of the log may have one. They come to an end.
for ((round = 1; ; ++round)); do
  before=$(faults)
  use_disk 4k-1M 8
  after=$(faults)
  echo "$((after - before)) page faults in round $round"
  ((after == before)) && break
  ((round < 20)) || fail "each round takes page faults"
done
ctl unmap disk.img
