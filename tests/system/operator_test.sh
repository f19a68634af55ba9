#!/usr/bin/env bash
# An operator at the server changes a disk's size and takes it from its client; the kernel's device
# follows, and its user gets it back.
source "$(dirname "$0")/lib.sh"
need_root
need blockdev
[[ -e /dev/fuse && -e /dev/loop-control ]] || skip "needs FUSE and loop devices"

mkdir "$work/root"
truncate -s 32M "$work/root/disk.img"
start_server "$work/root" --node-name "$node.server"
start_daemon
srv() { "$braid" --control "$node.server" "$@"; }
# refused TEXT COMMAND...: it fails and says TEXT.
refused() {
  local text=$1
  shift
  ! "$@" >"$work/out" 2>&1 || fail "\"$*\" did it"
  grep -qF -- "$text" "$work/out" || fail "\"$*\" did not say \"$text\": $(cat "$work/out")"
}

refused "truncate" srv resize disk.img 64M
device=$(ctl map "127.0.0.1:$port/disk.img" --name disk --json | field device)
has_size() { [[ $(ctl show disk --json | field size_bytes) == "$1" ]]; }
says() { grep -qF -- "$1" <<<"$(ctl why disk)"; }
# nbd takes another size from us; a loop device asks its file for it from Linux 6.18 on, and of an
# older kernel's, and of no other, it is said that it keeps its size, and what helps.
front_end=$(ctl show disk --json | field front_end)
IFS=. read -r major minor _ < <(uname -r)
kernel_follows() { [[ $front_end == nbd ]] || ((major * 1000 + minor >= 6018)); }
kernel_size=$(blockdev --getsize64 "$device")
kernel_has_size() {
  local now
  now=$(blockdev --getsize64 "$device")
  if kernel_follows; then
    ! says "map it again" || fail "$front_end is said not to follow: $(ctl why disk)"
    [[ $now == "$1" ]]
  else
    [[ $now == "$kernel_size" ]] || fail "$device has $now bytes, and had $kernel_size"
    says "keeps $kernel_size bytes: this kernel does not ask the file for its $1; unmap it and"
  fi
}
is_now() {
  wait_for 30 "the size of $1 bytes" has_size "$1"
  wait_for 30 "the size of $1 bytes in the kernel" kernel_has_size "$1"
}

grep -qF "disk.img (rw)" <<<"$(srv sessions)" || fail "sessions: $(srv sessions)"
session=$(srv sessions --json |
  python3 -c 'import json,sys; print(json.load(sys.stdin)["sessions"][0]["name"])')

srv resize disk.img 64M >"$work/out"
is_now $((64 << 20))
truncate -s 96M "$work/root/disk.img" # behind the server's back
is_now $((96 << 20))
refused "$session" srv resize disk.img 16M
srv resize disk.img 16M --force >"$work/out"
is_now $((16 << 20))

refused "nothing to close" srv close disk.img --session nobody
refused "no session \"nobody\"" srv close-session nobody
srv close-session "$session" --json >"$work/out"
grep -q '"sessions_ended": 1' "$work/out" || fail "close-session: $(cat "$work/out")"
wait_for 30 "the news of the close" says "operator"
dd if="$device" of="$work/read" bs=4k count=1 iflag=direct status=none &
reading=$!
wait_for 30 "a request that is held" says "1 requests are held"
ctl remap disk >"$work/out" || fail "remap: $(cat "$work/out")"
wait "$reading" || fail "what was held failed"
refused "is open" ctl remap disk
grep -q '"closed": 1' <<<"$(srv close disk.img --json)" || fail "close"
wait_for 30 "the news of the close" says "operator"
ctl unmap disk --force >/dev/null
