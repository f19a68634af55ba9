#!/usr/bin/env bash
# Unmapping and ending: what is in use stays and is named, force and signals get through to what
# hangs, and nothing is taken away by accident. A server that is stopped, not killed.
source "$(dirname "$0")/lib.sh"
need_root
need python3 losetup

holder_pid=
# A holder with a pipe to end it, and a line when it has the device.
hold() {
  rm -f "$work/gate" "$work/held"
  mkfifo "$work/gate"
  : >"$work/held"
  sh -c 'exec 4<"$1" && echo open >"$2" && read -r line <"$3"' sh "$1" "$work/held" "$work/gate" &
  holder_pid=$!
  wait_for_line 60 "opening $1" "$work/held" open "$holder_pid"
}
let_go() {
  [[ $holder_pid ]] || return 0
  kill "$holder_pid" 2>/dev/null || true
  wait "$holder_pid" 2>/dev/null || true
  holder_pid=
}
at_end=let_go

# fails TEXT COMMAND...: with exit code 1, saying TEXT.
fails() {
  local text=$1 status=0
  shift
  "$@" >"$work/out" 2>&1 || status=$?
  ((status == 1)) || fail "\"$*\" ended with $status, not 1: $(cat "$work/out")"
  grep -qF -- "$text" "$work/out" || fail "\"$*\" did not say \"$text\": $(cat "$work/out")"
}
state() { ctl show disk --json 2>/dev/null | field state; }
state_is() { [[ $(state) == "$1" ]]; }
map_disk() { ctl map "127.0.0.1:$port/disk" --json "$@" | field device; }

mkdir "$work/root"
truncate -s 8M "$work/root/disk"
start_server "$work/root"
start_daemon

# What is mapped is shown; a name is there once.
device=$(map_disk)
[[ -b $device ]] || fail "$device is no block device"
fails "is mapped already" ctl map "127.0.0.1:$port/disk"
ctl show disk >"$work/out"
grep -q "^io_process " "$work/out" || fail "show does not tell the measures of the process"
ctl why "$device" >/dev/null

# In use: named, refused; a first signal to the daemon changes nothing, a second one does.
hold "$device"
fails "is in use" ctl unmap disk
kill -HUP "$daemon_pid"
kill -TERM "$daemon_pid"
wait_for_line 60 "the words of the daemon" "$work/daemon.log" "is in use" "$daemon_pid"
running "$daemon_pid" || fail "the daemon ended though its device is in use"
ctl list >/dev/null || fail "the daemon does not answer while it waits"
kill -TERM "$daemon_pid"
wait_for_end 60 "the daemon's end" "$daemon_pid"
let_go
start_daemon

# Read-only, and away again.
device=$(map_disk --read-only)
[[ $(ctl show disk --json | field access) == ro ]] || fail "not mapped read-only"
[[ $(ctl unmap "$device") == "unmapped disk ($device)" ]] || fail "unmapped with other words"

# The server is stopped. Refused, or waiting: force gets through either way, and so does list.
device=$(map_disk)
sh -c 'dd if=/dev/urandom of="$0" bs=64k count=16 conv=notrunc status=none' "$device"
kill -STOP "$server_pid"
ctl unmap disk >"$work/polite" 2>&1 &
polite_pid=$!
ctl list >/dev/null || fail "list does not answer while a device is unmapped"
gone() { ! ctl show disk >/dev/null 2>&1; }
waits() { gone || state_is path-down || state_is unmapping; }
wait_for 60 "the loss of the path" waits
ctl unmap --force disk >"$work/out" 2>&1 || gone ||
  fail "force did not get through: $(cat "$work/out")"
wait "$polite_pid" || true
gone || fail "the device is still there"
kill -CONT "$server_pid"

# A device in the foreground ends with a signal; nohup protects a server from HUP.
: >"$work/front.log"
"$braid" map --foreground --node-name "$node.map" --name front "127.0.0.1:$port/disk" \
  --metrics 127.0.0.1:0 >"$work/front.log" 2>&1 &
front_pid=$!
wait_for_line 60 "the device in the foreground" "$work/front.log" '^/dev/' "$front_pid"
wait_for_line 60 "the place of its metrics" "$work/front.log" \
  '^metrics: http://127\.0\.0\.1:[1-9][0-9]*/metrics$' "$front_pid"
kill -TERM "$front_pid"
wait_for_end 60 "the end of the device in the foreground" "$front_pid"
wait "$front_pid" || fail "braid map --foreground ended with $?"
serve_ram=("$braid" serve --memory ram=1M --listen 127.0.0.1:0 --node-name "$node.nohup")
: >"$work/nohup.log"
(trap '' HUP && exec "${serve_ram[@]}") >"$work/nohup.log" 2>&1 &
nohup_pid=$!
wait_for_line 60 "the start of a server" "$work/nohup.log" ^serving "$nohup_pid"
kill -HUP "$nohup_pid"
"$braid" --control "$node.nohup" list >/dev/null || fail "HUP ended a server that ignores it"
kill -TERM "$nohup_pid"
wait_for_end 60 "the end of the server" "$nohup_pid"
