#!/usr/bin/env bash
# A server with two reactors: two clients at once by TCP, each with a reactor of its own there. All
# that they write is what they read, and the figures of the reactors add up to what fio has done.
# Then a device with two reactors of its own.
source "$(dirname "$0")/lib.sh"
need_root
need fio python3
[[ -e /dev/fuse && -e /dev/loop-control ]] || skip "needs FUSE and loop devices"

json() { python3 -c "import json,sys; d=json.load(sys.stdin); print($1)"; }
srv() { "$braid" --control "$node.server" "$@"; }
refused() {
  ! "$@" >"$work/out" 2>&1 || fail "\"$*\" did it"
  grep -qF -- "reactors" "$work/out" || fail "\"$*\" said: $(cat "$work/out")"
}
refused "$braid" serve --memory a=8M --listen 127.0.0.1:0 --reactors 0
refused "$braid" serve --memory a=8M --listen 127.0.0.1:0 --reactors 17
refused "$braidd" --node-name "$node" --reactors 2

refused "$braidd" --node-name "$node" --map-reactors 0
refused "$braid" map 127.0.0.1/a --reactors 17

start_server --memory a=16M --memory b=16M --wire tcp --reactors 2 --node-name "$node.server"
other_pid=
at_end=stop_other
stop_other() { stop_process "$other_pid"; }
start_daemon --wire tcp
other_pid=$daemon_pid
"$braidd" --node-name "$node.other" --wire tcp >"$work/other.log" 2>&1 &
daemon_pid=$!
wait_for_line 60 "the start of the other daemon" "$work/other.log" '^braidd is ready' "$daemon_pid"

one=$(ctl map "127.0.0.1:$port/a" --json | json 'd["device"]')
two=$("$braid" --control "$node.other" map "127.0.0.1:$port/b" --json | json 'd["device"]')
fio --output-format=json --output="$work/fio.json" --ioengine=libaio --direct=1 --iodepth=8 \
  --rw=randrw --bs=4k --verify=crc32c --verify_fatal=1 --verify_state_save=0 --size=8m \
  --randrepeat=0 --name=one --filename="$one" --name=two --filename="$two" >"$work/fio.log" 2>&1 ||
  fail "fio: $(cat "$work/fio.log")"
[[ $(json '[j["error"] for j in d["jobs"]]' <"$work/fio.json") == "[0, 0]" ]] || fail "fio's errors"
each='j["read"]["total_ios"] + j["write"]["total_ios"] for j in d["jobs"]'
ios=$(json "min($each)" <"$work/fio.json")
((ios >= 1000)) || fail "fio did only $ios requests"

# holds EXPRESSION: of the server's figures, `s`. The kernel may have merged requests.
srv show "$node.server" --json >"$work/server.json"
holds() {
  [[ $(json "(lambda s: $1)(d['server'])" <"$work/server.json") == True ]] ||
    fail "\"$1\" does not hold of $(cat "$work/server.json")"
}
holds "s['reactors'] == 2"
holds "all(2 * n >= $ios for n in s['requests_by_reactor'])"
holds "s['requests_by_reactor'][1] == s['requests_handed_over']"
ctl unmap a >/dev/null
"$braid" --control "$node.other" unmap b >/dev/null

# Devices with reactors of their own: 2, 4, then what the daemon is started with. With nbd.ko each
# of them carries requests, with FUSE the home does; that is told. What is written through the one
# is read through the next.
told() {
  [[ $(json "$1" <"$work/device.json") == True ]] ||
    fail "\"$1\" does not hold of $(cat "$work/device.json")"
}
processors=$(taskset -cp $$ | sed 's/.*: //')
threads() { cat /proc/"$1"/task/*/comm | grep -c '^braid-io' || true; }
# use COUNT ARGUMENT...: maps with the arguments, which is COUNT reactors, writes, reads, unmaps.
use() {
  local count=$1 device
  ctl map "127.0.0.1:$port/a" "${@:2}" >"$work/map.log" 2>&1 || fail "map: $(cat "$work/map.log")"
  device=$(ctl show a --json | json 'd["device"]')
  if [[ -e $work/written ]]; then
    cmp -n 8M "$work/written" "$device" || fail "$count reactors read something else"
  fi
  fio --output-format=json --output="$work/fio.json" --ioengine=libaio --direct=1 --iodepth=8 \
    --rw=randrw --bs=4k --verify=crc32c --verify_fatal=1 --verify_state_save=0 --size=2m \
    --randrepeat=0 --numjobs=4 --offset_increment=2m \
    --cpus_allowed="$processors" --cpus_allowed_policy=split \
    --name=own --filename="$device" >"$work/fio.log" 2>&1 ||
    fail "fio: $(cat "$work/fio.log")"
  dd if="$device" of="$work/written" bs=1M count=8 iflag=direct status=none
  ctl show a --json >"$work/device.json"
  told "d['reactors'] == $count"
  told "len(d['session']['by_reactor']) == $count"
  told "len(d['requests']['sent_by_reactor']) == $count"
  told "any('processor' in why for why in d['why']) == ($count > $(nproc))"
  if [[ $(json 'd["front_end"]' <"$work/device.json") == nbd.ko* ]]; then
    told "'on $count reactors' in d['front_end']"
    # The kernel gives each processor one of the queues.
    ((count > $(nproc))) || told "all(n > 0 for n in d['requests']['sent_by_reactor'])"
  else
    told "'on one reactor only' in d['front_end']"
  fi
  ctl unmap a >"$work/map.log" 2>&1 || fail "unmap: $(cat "$work/map.log")"
}
(($(threads "$other_pid") == 1)) || fail "a daemon that maps by one reactor has more threads"
use 2 --reactors 2
use 4 --reactors 4
(($(threads "$other_pid") == 4)) || fail "4 reactors are $(threads "$other_pid") threads"
stop_process "$other_pid"
other_pid=$daemon_pid
start_daemon --wire tcp --map-reactors 3
use 3
