#!/usr/bin/env bash
# Filters of a mapped device: what the kernel writes and reads goes through them. With checksums fio
# finds nothing wrong; then a block of the server's file is changed behind its back, and the read
# fails and says which. Refusals of words.
source "$(dirname "$0")/lib.sh"
need_root
need fio python3
[[ -e /dev/fuse && -e /dev/loop-control ]] || skip "needs FUSE and loop devices"

json() { python3 -c "import json,sys; d=json.load(sys.stdin); print($1)"; }
# refused WORDS COMMAND...
refused() {
  local words=$1
  shift
  ! "$@" >"$work/out" 2>&1 || fail "\"$*\" did it"
  grep -qF -- "$words" "$work/out" || fail "\"$*\" said: $(cat "$work/out")"
}
told() {
  [[ $(json "$1" <"$work/device.json") == True ]] ||
    fail "\"$1\" does not hold of $(cat "$work/device.json")"
}

mkdir "$work/root"
truncate -s 32M "$work/root/disk.img"
start_server "$work/root"
start_daemon
target=127.0.0.1:$port/disk.img

refused '--filter: filter "dealy:1ms": want delay:, error:, rate: or checksum' \
  "$braid" map "$target" --filter dealy:1ms
refused '"reed=1ms": want TIME' ctl map "$target" --filter checksum --filter delay:reed=1ms
refused 'with access migration' ctl map "$target" --filter checksum --access migration

device=$(ctl map "$target" --json --filter checksum --filter delay:write=1us-500us,percent=10 |
  json 'd["device"]')
fio --ioengine=libaio --direct=1 --iodepth=8 --rw=randwrite --bs=16k --verify=crc32c \
  --verify_fatal=1 --verify_state_save=0 --size=16m --randrepeat=0 --name=one \
  --filename="$device" >"$work/fio.log" 2>&1 || fail "fio: $(cat "$work/fio.log")"
dd if=/dev/urandom of="$device" bs=64k seek=256 count=64 oflag=direct status=none
dd if="$device" of=/dev/null bs=64k skip=256 count=64 iflag=direct status=none
ctl show disk.img --json >"$work/device.json"
told "d['filters'] == ['checksum', 'delay:write=1us-500us,percent=10']"
told "d['filter_statistics'][0]['blocks_verified'] >= 1024"
told "d['filter_statistics'][0]['blocks_mismatched'] == 0"
told "d['filter_statistics'][1]['delayed'] > 0"

# Block 4101 lies in the part that was just written.
printf 'damaged' |
  dd of="$work/root/disk.img" bs=1 seek=$((4101 * 4096 + 77)) conv=notrunc status=none
read_at() { dd if="$device" of=/dev/null bs=4k skip="$1" count="$2" iflag=direct status=none; }
refused 'Input/output error' read_at 4096 8
read_at 4102 64 || fail "the blocks behind the damaged one"
ctl why disk.img >"$work/why"
damage="checksum of 'disk.img', block 4101 \(offset 16797696\): want [0-9a-f]{12}, got"
grep -qE "$damage" "$work/why" ||
  fail "braid why: $(cat "$work/why")"
grep -qE "$damage" "$work/daemon.log" || fail "the log says nothing"
dd if=/dev/zero of="$device" bs=4k seek=4101 count=1 oflag=direct status=none
read_at 4096 8 || fail "what was written again"
ctl unmap disk.img >/dev/null

# Errors, and a rate that is what a device waits for; by force it does not wait.
device=$(ctl map "$target" --json --filter rate:write-bytes=64K,burst=0s \
  --filter error:read,from=1M,to=2M | json 'd["device"]')
refused 'Input/output error' read_at 300 1
read_at 100 1 || fail "a read beside the range"
dd if=/dev/zero of="$device" bs=64k count=128 status=none oflag=direct 2>"$work/dd.log" &
writer=$!
holding() {
  ctl why disk.img >"$work/why" &&
    grep -qE "filter 'rate:write-bytes=64K,burst=0ns' holds [1-9]" "$work/why"
}
wait_for 30 "a request that the rate holds" holding
ctl unmap disk.img --force >/dev/null
wait "$writer" || true
! ctl show disk.img >"$work/out" 2>&1 || fail "it is still there"

# In the foreground, too.
"$braid" map --foreground "$target" --filter delay:1ms --node-name "$node.own" \
  >"$work/own.log" 2>&1 &
own=$!
wait_for_line 60 "the map in the foreground" "$work/own.log" '^/dev/' "$own"
device=$(grep -oE '^/dev/[a-z0-9]+' "$work/own.log")
read_at 0 1 || fail "a read in the foreground"
"$braid" --control "$node.own" show disk.img --json >"$work/device.json"
told "d['filter_statistics'][0]['delayed'] > 0"
kill -TERM "$own"
wait "$own" || fail "the end of the foreground: $(cat "$work/own.log")"
