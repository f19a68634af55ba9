#!/usr/bin/env bash
# More than half of the memory of a 2 GiB cgroup is dirty pages of a mapped device when its server
# is killed; it comes back, and a sync ends: no task was stuck for over 30 s, every byte is right.
# Writer, daemon and server share the cgroup, so that what they need themselves is scarce too.
source "$(dirname "$0")/lib.sh"
need_root
need mkfs.ext4 fsck.ext4 openssl python3 blockdev
[[ -e /dev/fuse && -e /dev/loop-control ]] || skip "needs /dev/fuse and /dev/loop-control"

limit=$((2 << 30))
dirty_wanted=$((limit / 2))
# So that the group's limit is what makes memory scarce, and the machine has its own besides.
free_kb=$(awk '$1 == "MemAvailable:" { print $2 }' /proc/meminfo)
((free_kb > 3 << 20)) || skip "needs 3 GiB of free memory; there are $((free_kb >> 10)) MiB"

if [[ -d /sys/fs/cgroup/memory ]]; then
  group=/sys/fs/cgroup/memory/braid-test.$$
  limit_file=memory.limit_in_bytes
elif grep -qw memory /sys/fs/cgroup/cgroup.controllers 2>/dev/null; then
  group=/sys/fs/cgroup/braid-test.$$
  limit_file=memory.max
else
  skip "this kernel has no memory cgroup"
fi
mkdir "$group" 2>/dev/null || skip "no permission to make a cgroup"
remove_group() {
  local pid
  for pid in $(cat "$group/cgroup.procs" 2>/dev/null); do
    echo "$pid" >"${group%/*}/cgroup.procs" 2>/dev/null || true
  done
  rmdir "$group" 2>/dev/null || true
}
at_end=remove_group
# The limits of dirty memory are the machine's: one at a time changes them. Whoever waits for this
# lock also waits for their restoration.
exec 8</proc/sys/vm/dirty_ratio
flock --timeout 900 8 || fail "another test has had the limits of dirty memory for 15 minutes"
# By default the kernel slows a writer down long before half of the memory is dirty: at a fifth of
# the group's memory (cgroup v2), or of the machine's (v1).
limits_before=()
for limit_name in dirty_ratio dirty_background_ratio dirty_bytes dirty_background_bytes; do
  limits_before+=("$limit_name=$(cat "/proc/sys/vm/$limit_name")")
done
restore_dirty_limits() {
  local one
  for one in "${limits_before[@]}"; do
    # Each has a twin in other units; 0 means that the twin counts.
    [[ ${one#*=} == 0 ]] || echo "${one#*=}" >"/proc/sys/vm/${one%=*}"
  done
}
# A test that takes too long is killed, with all that descends from it: this one does not, and
# restores the limits when we have ended, however that was.
(
  trap - EXIT
  { tail --pid=$$ -f /dev/null && restore_dirty_limits; } </dev/null >/dev/null 2>&1 &
)
echo "$limit" >"$group/$limit_file" || skip "the cgroup takes no limit"
{
  echo 80 >/proc/sys/vm/dirty_ratio && echo 70 >/proc/sys/vm/dirty_background_ratio
} 2>/dev/null || skip "no permission to raise the limits of dirty memory"
# From here on everything we start is in the group.
echo $$ >"$group/cgroup.procs"

dirty_bytes() {
  awk '$1 == "dirty" || $1 == "file_dirty" { dirty = $2 }
       $1 == "writeback" || $1 == "file_writeback" { back = $2 }
       END { print dirty + back }' "$group/memory.stat"
}

mkdir "$work/root" "$work/disk"
truncate -s 3G "$work/root/disk.img"
start_server "$work/root"
start_daemon
device=$(ctl map "127.0.0.1:$port/disk.img" --name pressed --json | field device)
mkfs.ext4 -q -F "$device"
mount -o noatime "$device" "$work/disk"

mkfifo "$work/end"
python3 tests/system/stuck_tasks.py "$group" "${device#/dev/}" <"$work/end" >"$work/stuck.json" &
sampler=$!
exec 9>"$work/end"

# stream MIB: bytes that can be made again, unlike any others: a cipher's key stream.
stream() {
  { openssl enc -aes-128-ctr -K 00112233445566778899aabbccddeeff -iv 0 -in /dev/zero 2>/dev/null ||
    true; } | head -c "$1M"
}
stream 1500 >"$work/disk/file" 2>"$work/writer.log" &
writer=$!
highest=0
much_is_dirty() {
  local now
  now=$(dirty_bytes)
  ((highest = now > highest ? now : highest))
  ((now > dirty_wanted)) && return
  running "$writer" || fail "the writer ended with at most $((highest >> 20)) MiB dirty"
  return 1
}
wait_for 120 "dirtying half of the memory" much_is_dirty
kill_server
echo "$((highest >> 20)) MiB of $((limit >> 20)) MiB are dirty, the server is dead"
# What is dirty must be written to a server that is not there.
sync -f "$work/disk" &
syncing=$!
io_waits() { [[ $(ctl show pressed --json | field state) == path-down ]]; }
wait_for 120 "the device noticing" io_waits
start_server "$work/root"
wait "$syncing" || fail "sync reported an error"
wait "$writer" || fail "the writer failed: $(cat "$work/writer.log")"
sync -f "$work/disk" || fail "sync reported an error"
# Once more, while data is on its way.
stream 500 >"$work/disk/again" &
writer=$!
some_is_on_its_way() { (($(dirty_bytes) > 64 << 20)) || ! running "$writer"; }
wait_for 120 "new dirty data" some_is_on_its_way
kill_server
start_server "$work/root"
wait "$writer" || fail "the second writer failed"
sync -f "$work/disk" || fail "the second sync reported an error"

umount "$work/disk"
fsck.ext4 -fn "$device" >"$work/fsck.log" 2>&1 || fail "fsck found damage"
# A network namespace that another test has made meanwhile has a copy of the mount until it goes.
mount_again() { mount -o ro "$device" "$work/disk" 2>>"$work/mount.log"; }
wait_for 60 "the second mount" mount_again
for file in file:1500 again:500; do
  [[ $(sha256sum <"$work/disk/${file%:*}") == $(stream "${file#*:}" | sha256sum) ]] ||
    fail "${file%:*} has other bytes"
done
umount "$work/disk"

echo end >&9
exec 9>&-
wait "$sampler"
cat "$work/stuck.json"
python3 - "$work/stuck.json" <<'PY' || fail "a task was stuck for over 30 s"
import json, sys
worst = json.load(open(sys.argv[1]))
assert worst["samples"] > 10, "the watcher saw too little"
sys.exit(worst["seconds"] > 30)
PY
ctl unmap pressed
