#!/usr/bin/env bash
# `braid nbd` as its users' programs see it: libnbd's tools, QEMU's and fio, over a unix socket and
# TCP, on local devices and on a remote one whose server is killed and started again under I/O.
source "$(dirname "$0")/lib.sh"
need nbdinfo nbdcopy qemu-img qemu-io fio python3 flock

sock=$work/nbd.sock
nbd_pid=
# start_nbd ARGUMENT...: until it says that it is ready.
start_nbd() {
  : >"$work/nbd.log"
  # What a shell starts in the background ignores Ctrl-C.
  env --default-signal=INT "$braid" nbd "$@" >"$work/nbd.log" 2>&1 &
  nbd_pid=$!
  wait_for_line 60 "the start of the NBD server" "$work/nbd.log" '^ready for NBD clients' "$nbd_pid"
}
stop_nbd() {
  kill -INT "$nbd_pid"
  wait_for_end 60 "the end of the NBD server" "$nbd_pid"
  wait "$nbd_pid" || fail "the NBD server ended with $?"
  nbd_pid=
}
end_nbd() { stop_process "$nbd_pid"; }
at_end=end_nbd
uri() { echo "nbd+unix:///$1?socket=$sock"; }
tcp_uri() { sed -nE "s,^(nbd://[^ ]*/$1)\$,\\1,p" "$work/nbd.log"; }
# expect CODE TEXT COMMAND...: the command ends with CODE and says TEXT.
expect() {
  local code=$1 text=$2 status=0
  shift 2
  timeout 60 "$@" >"$work/out" 2>&1 || status=$?
  ((status == code)) || fail "\"$*\" ended with $status, not $code: $(cat "$work/out")"
  grep -qF -- "$text" "$work/out" || fail "\"$*\" did not say \"$text\": $(cat "$work/out")"
}

# --- what is typed wrong, and what is there already
expect 0 "Examples:" "$braid" nbd --help
expect 2 "TARGET is required" "$braid" nbd
expect 2 "multiple of 4096" "$braid" nbd memory:1000 --unix "$sock"
expect 2 "memory:SIZE" "$braid" nbd nonsense --unix "$sock"
expect 2 "there is a \"memory\" already" "$braid" nbd memory:1M memory:2M --unix "$sock"
expect 2 "device name" "$braid" nbd 'a b=memory:1M' --unix "$sock"
expect 1 "file \"$work/none\"" "$braid" nbd "file:$work/none" --unix "$sock"
expect 1 "$work/nowhere" "$braid" nbd memory:1M --unix "$work/nowhere/x.sock"
expect 1 "nobody listens" "$braid" nbd 127.0.0.1:1/x --unix "$sock"
[[ ! -e $sock ]] || fail "a server that did not start has left its socket"
echo mine >"$work/file"
expect 1 "is no socket" "$braid" nbd memory:1M --unix "$work/file"
mkdir "$work/locked"
exec 8<"$work/locked"
flock 8
expect 1 "another program holds a lock on its folder \"$work/locked\"" \
  "$braid" nbd memory:1M --unix "$work/locked/x.sock"
exec 8<&-
python3 -c 'import socket,sys; socket.socket(socket.AF_UNIX).bind(sys.argv[1])' "$sock"

# --- local devices; the socket that a dead server has left is replaced
truncate -s 32M "$work/disk.img"
start_nbd ram=memory:64M "file:$work/disk.img" null:1G --unix "$sock" --listen 127.0.0.1:0 \
  --metrics 127.0.0.1:0
grep -qE '^metrics: http://127\.0\.0\.1:[1-9][0-9]*/metrics$' "$work/nbd.log" ||
  fail "it does not tell where its metrics are: $(cat "$work/nbd.log")"
expect 1 "somebody serves at socket" "$braid" nbd memory:1M --unix "$sock"
expect 0 "export-size: 67108864" nbdinfo "$(uri ram)"
nbdinfo --json "$(uri ram)" >"$work/info.json"
python3 - "$work/info.json" <<'PY' || fail "nbdinfo tells other things: $(cat "$work/info.json")"
import json, sys
info = json.load(open(sys.argv[1]))
export = info["exports"][0]
assert info["structured"] is True, info
assert export["export-name"] == "ram" and export["export-size"] == 64 << 20, export
assert export["description"].startswith("memory:64.0 MiB at "), export
for can in ("multi_conn", "flush", "fua", "trim", "zero", "df"):
    assert export["can_" + can] is True, can
for cannot in ("cache", "fast_zero"):
    assert export["can_" + cannot] is False, cannot
assert export["is_read_only"] is False
assert export["block_size_minimum"] == 512 and export["block_size_preferred"] == 4096
assert export["block_size_maximum"] == 32 << 20
PY
expect 0 "export-size: 67108864" nbdinfo "$(uri '')"
nbdinfo --list "$(uri '')" >"$work/list"
for name in ram disk.img null; do
  grep -q "export=\"$name\"" "$work/list" || fail "--list has no $name: $(cat "$work/list")"
done
expect 1 'there is no export "other"; there are: "ram", "disk.img", "null"' \
  qemu-img info "$(uri other)"
expect 0 "nbd+unix:///ram?socket=$sock" "$braid" list

# in and out, by several connections
dd if=/dev/urandom of="$work/random" bs=1M count=32 status=none
for there in "$(uri disk.img)" "$(tcp_uri disk.img)"; do
  nbdcopy --flush "$work/random" "$there" || fail "nbdcopy to $there"
  nbdcopy "$there" "$work/back" || fail "nbdcopy from $there"
  cmp "$work/random" "$work/back" || fail "other bytes came back from $there"
  truncate -s 0 "$work/back"
done
cmp "$work/random" "$work/disk.img" || fail "the file has not got what was written"

# QEMU
qemu-img create -q -f qcow2 "$work/q.qcow2" 64M
qemu-io -c 'write -P 0x5a 1M 3M' -c 'write -z 2M 64k' "$work/q.qcow2" >"$work/out" || fail qemu-io
for there in "$(uri ram)" "$(tcp_uri ram)"; do
  qemu-img convert -n -W -m 8 -f qcow2 -O raw "$work/q.qcow2" "$there" || fail "convert to $there"
  expect 0 "Images are identical" qemu-img compare -f qcow2 -F raw "$work/q.qcow2" "$there"
  qemu-img convert -f raw -O qcow2 "$there" "$work/b.qcow2" || fail "convert from $there"
  expect 0 "Images are identical" qemu-img compare "$work/q.qcow2" "$work/b.qcow2"
done
qemu-io -f raw -c 'write -P 1 0 64k' -c 'write -f -P 2 64k 64k' -c 'write -z 128k 1M' \
  -c 'write -z -u 2M 1M' -c 'discard 4M 1M' -c flush -c 'read -P 1 0 64k' -c 'read -P 2 64k 64k' \
  -c 'read -P 0 128k 1M' -c 'read -P 0 2M 1M' -c 'read -P 0 4M 1M' "$(uri ram)" >"$work/out" 2>&1 ||
  fail "qemu-io: $(cat "$work/out")"
! grep -qi "failed\|error" "$work/out" || fail "qemu-io: $(cat "$work/out")"

# fio writes, verifies, with flushes
verify() {
  fio --name=x --ioengine=nbd --uri="$1" --rw=randwrite --bsrange=512-1M --blockalign=512 \
    --size=24M --iodepth=16 --verify=crc32c --verify_backlog=128 --fsync=32 --output="$work/fio" \
    --randrepeat=0 --verify_state_save=0 >"$work/fio.out" 2>&1 ||
    fail "fio on $1: $(cat "$work/fio.out" "$work/fio")"
}
verify "$(uri disk.img)"
verify "$(tcp_uri ram)"

# longer than a slot
verify_long() {
  fio --name=x --ioengine=nbd --uri="$1" --rw=randwrite --bs=4M --size=32M --iodepth=4 \
    --verify=crc32c --do_verify=1 --randrepeat=0 --verify_state_save=0 --output="$work/fio" \
    >"$work/fio.out" 2>&1 || fail "fio by 4 MiB on $1: $(cat "$work/fio.out" "$work/fio")"
}
verify_long "$(uri disk.img)"
verify_long "$(tcp_uri ram)"
for length in $((4 << 20)) $((32 << 20)); do
  nbdcopy --request-size=$length "$work/random" "$(uri ram)" || fail "nbdcopy by $length bytes"
  nbdcopy --request-size=$length "$(uri ram)" "$work/back" || fail "nbdcopy back by $length bytes"
  cmp -n $((32 << 20)) "$work/random" "$work/back" || fail "other bytes came back by $length"
done
qemu-io -f raw -c 'write -P 7 0 32M' -c 'read -P 7 0 32M' "$(uri ram)" >"$work/out" 2>&1 ||
  fail "qemu-io by 32 MiB: $(cat "$work/out")"
! grep -qi "failed\|error" "$work/out" || fail "qemu-io by 32 MiB: $(cat "$work/out")"
if python3 -c 'import nbd' 2>/dev/null; then
  python3 - "$(uri ram)" <<'PY' || fail "libnbd by 4 MiB"
import sys, nbd
for structured in (True, False):
    h = nbd.NBD()
    h.set_request_structured_replies(structured)
    h.connect_uri(sys.argv[1])
    data = bytes(range(256)) * (4 << 12)
    assert len(data) == 4 << 20
    h.pwrite(data, 1 << 20)
    assert h.pread(4 << 20, 1 << 20) == data
    h.shutdown()
PY
else
  echo "not tested: reads of 4 MiB by libnbd itself (python3-libnbd is not installed)"
fi
stop_nbd
[[ ! -e $sock ]] || fail "the socket is left behind"

# --- read-only
before=$(sha256sum <"$work/disk.img")
start_nbd "file:$work/disk.img" memory:1M --unix "$sock" --read-only
expect 0 "is_read_only: true" nbdinfo "$(uri disk.img)"
expect 1 "read-only" nbdcopy "$work/random" "$(uri disk.img)"
expect 1 "" qemu-io -f raw -c 'write 0 4k' "$(uri memory)"
stop_nbd
[[ $before == "$(sha256sum <"$work/disk.img")" ]] || fail "a read-only export was written to"

# --- a remote device: its server dies under I/O, comes back, and the I/O goes on
mkdir "$work/root"
truncate -s 64M "$work/root/remote.img"
start_server "$work/root"
start_nbd "vm=127.0.0.1:$port/remote.img" ram=memory:1M --unix "$sock"
expect 0 "export-size: 67108864" nbdinfo "$(uri '')"
nbdcopy "$work/random" "$(uri vm)" || fail "nbdcopy to the remote device"
verify_long "$(uri vm)"
fio --name=x --ioengine=nbd --uri="$(uri vm)" --rw=randwrite --bs=4k --size=64M --iodepth=16 \
  --verify=crc32c --do_verify=1 --verify_state_save=0 \
  --number_ios=8000 --rate_iops=4000 --output="$work/fio" \
  >"$work/fio.out" 2>&1 &
fio_pid=$!
is_written() { (($(ctl_show writes) > 2000)); }
ctl_show() { "$braid" --control "nbd.$nbd_pid" show vm --json | python3 -c '
import json, sys
print(json.load(sys.stdin)["statistics"][sys.argv[1]])' "$1"; }
wait_for 60 "the first writes" is_written
kill_server
vm_status() { "$braid" --control "nbd.$nbd_pid" show vm --json; }
is_away() { ! grep -q '"state": "open"' <<<"$(vm_status)"; }
wait_for 60 "the news that the server is away" is_away
running "$fio_pid" || fail "fio ended when the server went: $(cat "$work/fio.out" "$work/fio")"
start_server "$work/root"
wait "$fio_pid" || fail "I/O did not go on: $(cat "$work/fio.out" "$work/fio")"
# who named no export gets no other disk when his is gone
"$braid" --control "nbd.$nbd_pid" unmap vm >"$work/out" || fail "unmap vm: $(cat "$work/out")"
gone='"vm", which a client gets that names no export, is not there just now; there is: "ram"'
expect 1 "$gone" qemu-img info "$(uri '')"
expect 1 'there is no export "vm"; there is: "ram"' qemu-img info "$(uri vm)"
expect 0 "export-size: 1048576" nbdinfo "$(uri ram)"
stop_nbd

# --- the end with a server that is away and requests that wait: said, then forced
start_nbd "vm=127.0.0.1:$port/remote.img" ram=memory:1M --unix "$sock"
kill_server
wait_for 60 "the news that the server is away" is_away
qemu-io -f raw -c 'write 0 4k' "$(uri vm)" >"$work/qemu.out" 2>&1 &
qemu_pid=$!
is_waiting() { vm_status | python3 -c '
import json, sys
requests = json.load(sys.stdin)["requests"]
sys.exit(requests["waiting"] + requests["in_progress"] == 0)'; }
wait_for 60 "a request that waits" is_waiting
kill -INT "$nbd_pid"
wait_for_line 60 "the words about what waits" "$work/nbd.log" 'end this process again' "$nbd_pid"
expect 0 "export-size: 1048576" nbdinfo "$(uri ram)"  # it has not come to an end: clients get in
kill -INT "$nbd_pid"
wait_for_end 60 "the end by force" "$nbd_pid"
wait "$nbd_pid" || true
wait "$qemu_pid" || true
[[ ! -e $sock ]] || fail "the socket is left behind by an end by force"
nbd_pid=

# --- the URI that is told is good for any path
start_nbd memory:1M --unix "$work/a b#c&d%e?f+g"
told=$(grep '^nbd+unix:' "$work/nbd.log")
expect 0 "export-size: 1048576" nbdinfo "$told"
expect 0 "virtual size: 1 MiB" qemu-img info "$told"
stop_nbd

# --- as JSON
: >"$work/nbd.json"  # who waits for its lines may be there before who writes them
env --default-signal=INT "$braid" --json nbd memory:1M --unix "$sock" >"$work/nbd.json" &
nbd_pid=$!
wait_for_line 60 "the JSON" "$work/nbd.json" '^}' "$nbd_pid"
python3 - "$work/nbd.json" "$sock" <<'PY' || fail "the JSON is wrong: $(cat "$work/nbd.json")"
import json, sys
nbd = json.load(open(sys.argv[1]))["nbd"]
assert nbd["exports"] == [{"name": "memory", "uris": ["nbd+unix:///memory?socket=" + sys.argv[2]]}]
PY
stop_nbd
