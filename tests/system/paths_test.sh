#!/usr/bin/env bash
# Several paths, through the commands alone: two cables between two network namespaces, and fio,
# which sees no error when one is pulled, or the other, or when paths are added and removed.
source "$(dirname "$0")/lib.sh"
need_root
need ip nsenter fio losetup python3
[[ -e /dev/fuse && -e /dev/loop-control ]] || skip "needs /dev/fuse and /dev/loop-control"

here=braidc$$
there=braids$$
at_end=remove_namespaces
remove_namespaces() {
  ip netns del "$here"
  ip netns del "$there"
} 2>/dev/null
ip netns add "$here" 2>"$work/ip.log" && ip netns add "$there" 2>>"$work/ip.log" ||
  skip "no network namespaces here: $(tail -n 1 "$work/ip.log")"
# The client has 10.214.N.1, the server 10.214.N.2, on cable N.
for cable in 0 1 2; do
  ip link add "eth$cable" netns "$here" type veth peer name "eth$cable" netns "$there" ||
    skip "no veth here"
  ip -n "$here" addr add "10.214.$cable.1/24" dev "eth$cable"
  ip -n "$there" addr add "10.214.$cable.2/24" dev "eth$cable"
  ip -n "$here" link set "eth$cable" up
  ip -n "$there" link set "eth$cable" up
done
ip -n "$here" link set lo up
pull() { ip -n "$there" link set "eth$1" down; }
plug() { ip -n "$there" link set "eth$1" up; }

# Only the network: devices and mounts are those of this machine.
server() {
  : >"$work/$1.log"
  nsenter --net="/run/netns/$there" "$braid" serve --node-name "$1" "${@:2}" >"$work/$1.log" 2>&1 &
  server_pid=$!
  wait_for_line 60 "the start of server $1" "$work/$1.log" '^serving ' "$server_pid"
}
server "other.$$" --listen 10.214.2.2:1235 --memory x=1M
other_pid=$server_pid
server "server.$$" --listen 10.214.0.2 --listen 10.214.1.2 --listen 10.214.2.2 \
  --memory ram=64M --memory more=1M
grep -q "on 10.214.0.2:1234 and 10.214.1.2:1234 and 10.214.2.2:1234" "$work/server.$$.log" ||
  fail "the server does not name its addresses"
: >"$work/daemon.log"
nsenter --net="/run/netns/$here" "$braidd" --node-name "$node" >"$work/daemon.log" 2>&1 &
daemon_pid=$!
wait_for_line 60 "the start of the daemon" "$work/daemon.log" '^braidd is ready' "$daemon_pid"
ctl() { nsenter --net="/run/netns/$here" "$braid" --control "$node" "$@"; }
at_server() { nsenter --net="/run/netns/$there" "$braid" --control "server.$$" "$@"; }

# refuse TEXT COMMAND...
refuse() {
  local text=$1 status=0
  shift
  "$@" >"$work/out" 2>&1 || status=$?
  ((status != 0)) || fail "\"$*\" was not refused"
  grep -qF -- "$text" "$work/out" || fail "\"$*\" did not say \"$text\": $(cat "$work/out")"
}
# value EXPRESSION: of `s`, the only session of the client, and its paths by number, `p`.
value() {
  ctl path list --json | python3 -c '
import json, sys
s = json.load(sys.stdin)["sessions"][0]
p = {path["id"]: path for path in s["paths"]}
print(eval(sys.argv[1]))' "$1"
}
is() { [[ $(value "$1") == True ]]; }

ctl map "10.214.0.2,10.214.1.1@10.214.1.2/ram" --front-end fuse --json >"$work/map.json" ||
  fail "map: $(cat "$work/map.json")"
device=$(field device <"$work/map.json")
wait_for 60 "both paths" is 'p[0]["connected"] and p[1]["connected"]'
[[ $(value 'p[1]["path"]') == 10.214.1.1@10.214.1.2:1234 ]] || fail "path 1 is $(value 'p[1]')"
grep -q " 2/2 " <<<"$(ctl list)" || fail "list does not count the paths: $(ctl list)"
grep -q "10.214.0.1.*, 10.214.1.1" <<<"$(at_server sessions)" || fail "$(at_server sessions)"

refuse "no path \"7\"" ctl path remove ram 7
refuse "already, as path 0" ctl path add ram 10.214.0.2
refuse "another server listens there" ctl path add ram 10.214.2.2:1235
refuse "another server listens there" ctl map "10.214.0.2,10.214.2.2:1235/more" --front-end fuse
refuse "it was not added" ctl path add ram 10.214.2.2:1
refuse "GID" ctl path add ram gid:fe80:0000:0000:0000:0002:c903:0010:c0f5
refuse "10.214.9.9" ctl path add ram 10.214.9.9@10.214.1.2
refuse '"kind": "not-found"' ctl path remove nothing 0 --json
stop_process "$other_pid"

begin_fio() { # NAME [ARGUMENT...]: 4 KiB random writes
  fio --name="$1" --filename="$device" --rw=randwrite --bs=4k --iodepth=16 --direct=1 \
    --ioengine=libaio --size=32M --randrepeat=0 --output-format=json --output="$work/$1.json" \
    "${@:2}" >"$work/$1.log" 2>&1 &
  fio_pid=$!
}
ios() { value "sum(path['writes'] + path['reads'] for path in p.values())"; }
flows() { # until so many more requests were answered
  local from
  from=$(ios)
  enough() { (($(ios) > from + 200)); }
  wait_for 60 "$1" enough
}
begin_fio load --norandommap --time_based --runtime=600
flows "I/O over both paths"
is 'p[0]["writes"] > 0 and p[1]["writes"] > 0' || fail "one path idles: $(value p)"

pull 1
wait_for 60 "the loss of path 1" is 'not p[1]["connected"]'
flows "I/O over the path that is left"
grep -q "by 1 of 2 paths" <<<"$(ctl why ram)" || fail "why: $(ctl why ram)"
plug 1
ctl path reconnect ram 1 >/dev/null # at once, instead of with the next attempt
wait_for 60 "the return of path 1" is 'p[1]["connected"]'
pull 0
wait_for 60 "the loss of path 0" is 'not p[0]["connected"]'
flows "I/O over path 1"
is 'p[0]["failed_over"] + p[1]["failed_over"] > 0' || fail "nothing failed over: $(value p)"

# The first path is replaced by a third one, under load.
ctl path add ram 10.214.2.2 >"$work/added" || fail "path add: $(cat "$work/added")"
ctl path remove ram 10.214.0.2 >"$work/removed" || fail "path remove: $(cat "$work/removed")"
third=$(value 'max(p)') # numbers are never used again, those of refused paths included
ctl path disconnect ram 1 >/dev/null
flows "I/O over path 2"
refuse "--force" ctl path disconnect ram 10.214.2.2
ctl path reconnect ram 1 >/dev/null
wait_for 60 "path 1 made anew" is 'p[1]["connected"]'
for policy in round-robin min-latency; do
  ctl path policy ram "$policy" >/dev/null
  [[ $(ctl path policy ram) == "$policy" ]] || fail "the policy is not $policy"
  flows "I/O with policy $policy"
done
kill -INT "$fio_pid"
wait "$fio_pid" || true # its status is that of the signal
python3 - "$work/load.json" <<'PY' || fail "fio tells of errors"
import json, sys
text = open(sys.argv[1]).read()
job = json.loads(text[text.index("{"):])["jobs"][0]
assert job["error"] == 0, job
print(f"longest pause {job['write']['clat_ns']['max'] / 1e6:.0f} ms")
PY

# What is written while a path goes is there.
begin_fio verified --verify=crc32c --verify_fatal=1 --verify_state_save=0 --rate=8m
flows "verified I/O"
pull 2
wait_for 60 "the loss of path 2" is "not p[$third]['connected']"
wait "$fio_pid" || fail "fio read something else than it wrote: $(cat "$work/verified.log")"
plug 2

# Both cables: a delay.
pull 1
pull 2
wait_for 60 "the loss of both" is 's["state"] == "reconnecting"'
plug 2
ctl path reconnect ram "$third" >/dev/null
wait_for 60 "the return of one" is 's["state"] == "connected"'
dd if="$device" of=/dev/null bs=1M count=8 iflag=direct status=none || fail "reading at the end"
ctl path remove ram 1 >/dev/null || fail "removing a path that is down"
refuse "is the last one" ctl path remove ram "$third"
ctl unmap ram >/dev/null || fail "unmap"
[[ $(ctl path list) == "no session to any server" ]] || fail "a session is left: $(ctl path list)"
