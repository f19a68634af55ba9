#!/usr/bin/env bash
# A server that stays away: a device with a limit fails its I/O and recovers; a server that hangs
# keeps nobody from the disks of another.
set -euo pipefail
source "$(dirname "$0")/lib.sh"
need_root
[[ -e /dev/fuse && -e /dev/loop-control ]] || skip "needs FUSE and loop devices"

mkdir "$work/root"
truncate -s 16M "$work/root/disk.img" "$work/root/other.img"
start_server "$work/root"
start_daemon

expect_text() {
  local text=$1 said
  shift
  said=$("$@" 2>&1) || true
  grep -qF -- "$text" <<<"$said"
}
state_is() { [[ $(show state) == "$1" ]]; }
read_disk() {
  dd if="$device" of=/dev/null bs=4096 count=1 skip="$1" iflag=direct status=none 2>/dev/null
}
show() { ctl show disk.img --json | field "$1"; }

# --- a limit to patience
target=127.0.0.1:$port/disk.img
expect_text "--give-up-after" ctl map "$target" --give-up-after soon || fail "accepts nonsense"
device=$(ctl map "$target" --front-end fuse --give-up-after 2s --json | field device)
read_disk 0 || fail "the disk cannot be read"
[[ $(show give_up_after) == "2 s" ]] || fail "show does not tell the limit"
kill_server
! read_disk 1 || fail "a read of a disk that is away ended well"
wait_for 60 "giving up" state_is "path-down (gave up)"
expect_text "gave up after 2.0 s" ctl why disk.img || fail "why does not tell of giving up"
start_server "$work/root"
wait_for 60 "the disk's return" state_is open
read_disk 2 || fail "the disk that is back cannot be read"
ctl unmap disk.img

# --- a disk that is away and that nobody uses goes without force; one with dirty pages does not
device=$(ctl map "$target" --front-end fuse --json | field device)
read_disk 0 || fail "the disk cannot be read"
kill_server
wait_for 60 "the loss of the path" state_is path-down
said=$(ctl unmap disk.img 2>&1) || [[ $said == *"this kernel cannot tell"* ]] ||
  fail "an idle disk whose server is away is not unmapped: $said"
start_server "$work/root"
if [[ $said != *"this kernel cannot tell"* ]]; then
  device=$(ctl map "$target" --front-end fuse --json | field device)
fi
wait_for 60 "the disk" state_is open
# The pages stay dirty until the kernel's write-back finds the server gone: then requests wait.
dirty_and_away() {
  sh -c 'dd if=/dev/zero of="$0" bs=64k count=4 conv=notrunc status=none' "$device"
  kill_server
  wait_for 60 "the loss of the path" state_is path-down
}
dirty_and_away
! said=$(ctl unmap disk.img 2>&1) || fail "dirty pages were dropped without force"
grep -qE "not written back|wait for it|cannot tell" <<<"$said" || fail "it says only: $said"
ctl unmap disk.img --force 2>"$work/lost" || fail "force did not get through"
grep -qF "data may be lost" "$work/lost" || fail "what was lost is not said: $(cat "$work/lost")"
start_server "$work/root"

# --- a server that hangs, and one that does not. On a busy machine the hanging call may reach its
# own end first: then once more.
: >"$work/hung.log"
"$braid" serve --listen 127.0.0.1:0 --memory ram=16M >"$work/hung.log" 2>&1 &
hung_pid=$!
at_end() { kill -KILL "$hung_pid" 2>/dev/null; }
at_end=at_end
wait_for_line 60 "the start of the second server" "$work/hung.log" '^serving ' "$hung_pid"
hung_port=$(sed -nE 's/^serving .* on [^ ]*:([0-9]+) .*/\1/p' "$work/hung.log")
kill -STOP "$hung_pid"
for ((attempt = 1; ; ++attempt)); do
  ctl map "127.0.0.1:$hung_port/ram" >"$work/hung-map.log" 2>&1 &
  hung_map=$!
  ctl map "127.0.0.1:$port/other.img" --front-end fuse >"$work/map.log" ||
    fail "the healthy disk cannot be mapped"
  ctl unmap other.img >>"$work/map.log" || fail "the healthy disk cannot be unmapped"
  if running "$hung_map"; then break; fi
  ((attempt < 10)) || fail "mapping a healthy disk waits for the server that hangs"
done
# It fails in its own time, and leaves nothing behind.
! wait "$hung_map" || fail "a disk of a stopped server was mapped"
grep -qF "127.0.0.1:$hung_port" "$work/hung-map.log" || fail "the server that hangs is not named"
grep -q '"devices": \[\]' <<<"$(ctl list --json)" || fail "a device is left"
