#!/usr/bin/env bash
# Keys through the command line, inside the host and by TCP: who is let in, what those are told who
# are not, and what happens to a client whose key is taken away.
source "$(dirname "$0")/lib.sh"
need_root
need blockdev
[[ -e /dev/fuse && -e /dev/loop-control ]] || skip "needs FUSE and loop devices"

# refused TEXT COMMAND...: it fails and says TEXT.
refused() {
  local text=$1
  shift
  local status=0
  "$@" >"$work/out" 2>&1 || status=$?
  ((status == 1 || status == 2)) || fail "\"$*\" ended with $status"
  grep -qF -- "$text" "$work/out" || fail "\"$*\" did not say \"$text\": $(cat "$work/out")"
}
srv() { "$braid" --control "$node.server" "$@"; }
json() { python3 -c "import json,sys; d=json.load(sys.stdin); print($1)"; }
says() { grep -qF -- "$1" <<<"$(ctl why disk)"; }
open_now() { [[ $(ctl show disk --json | json 'd["state"]') == open ]]; }

mkdir "$work/root"
truncate -s 8M "$work/root/disk.img"

"$braid" key new vm7 -o "$work/vm7.key" >/dev/null
"$braid" key new vm8 --json | json 'd["line"]' >"$work/vm8.key"
"$braid" key new vm7 >"$work/other.key" # the same name, another secret
"$braid" key new vm9 >"$work/stranger.key"
chmod 600 "$work/vm8.key" "$work/other.key" "$work/stranger.key"
refused "is there already" "$braid" key new vm7 -o "$work/vm7.key"
refused "no name of a key" "$braid" key new "a b"
(umask 077 && cat "$work/vm7.key" "$work/vm8.key" >"$work/keys")
[[ $("$braid" key list "$work/keys" | tr '\n' ' ') == "vm7 vm8 " ]] || fail "key list"

chmod 644 "$work/keys"
refused "mode 0600 is right" "$braid" serve "$work/root" --listen 127.0.0.1:0 --keys "$work/keys"
chmod 600 "$work/keys"

# serve_with_keys WIRE SECOND-ADDRESS
serve_with_keys() {
  start_server "$work/root" --node-name "$node.server" --keys "$work/keys" --wire "$1" --listen "$2"
}
# whole WIRE [DAEMON ARGUMENT...]
whole() {
  local wire=$1
  serve_with_keys "$wire" 127.0.0.2:0
  start_daemon --wire "$wire"
  local target=127.0.0.1:$port/disk.img

  refused "lets in only clients with a key" ctl map "$target"
  refused 'the server refused our key "vm7"' ctl map "$target" --key "$work/other.key"
  refused 'the server refused our key "vm9"' ctl map "$target" --key "$work/stranger.key"
  refused "has 2 keys" ctl map "$target" --key "$work/keys"
  refused '"kind": "permission' ctl map "$target" --key "$work/other.key" --json
  refusals() { srv show "$node.server" --json | json "d['server']['keys_refused']['$1']"; }
  [[ $(refusals "no key shown") == 1 ]] || fail "counters: $(srv show "$node.server" --json)"
  [[ $(refusals "wrong key") == 2 ]] || fail "counters: $(srv show "$node.server" --json)"
  [[ $(refusals "key not known") == 1 ]] || fail "counters: $(srv show "$node.server" --json)"
  grep -qF 'has another by this name' "$work/server.log" || fail "the server's log"

  device=$(ctl map "$target" --key "$work/vm7.key" --name disk --json | field device)
  dd if=/dev/urandom of="$work/data" bs=4k count=16 status=none
  dd if="$work/data" of="$device" bs=4k oflag=direct status=none
  dd if="$device" bs=4k count=16 iflag=direct status=none | cmp - "$work/data" || fail "data"
  [[ $(srv sessions --json | json 'd["sessions"][0]["key"]') == vm7 ]] || fail "sessions"
  [[ $(ctl show disk --json | json 'd["session"]["key"]') == vm7 ]] || fail "show"

  # By a second path, which proves the key by itself.
  local second paths
  second=$(srv show "$node.server" --json | json 'd["server"]["endpoints"][1]')
  ctl path add disk "$second" >/dev/null
  paths=$(ctl show disk --json | json '[p["connected"] for p in d["session"]["paths"]]')
  [[ $paths == "[True, True]" ]] || fail "a path that was added: $(ctl path list)"
  dd if="$device" bs=4k count=16 iflag=direct status=none | cmp - "$work/data" || fail "data"

  # Its server is killed and comes back: nobody has to do anything.
  kill_server
  serve_with_keys "$wire" "$second"
  wait_for 30 "the proof after a restart" open_now
  dd if="$device" bs=4k count=16 iflag=direct status=none | cmp - "$work/data" || fail "data"

  # The key is taken away, and given back.
  cp "$work/keys" "$work/both"
  chmod 644 "$work/keys"
  refused "mode 0600 is right" srv key reload
  chmod 600 "$work/keys"
  cat "$work/vm8.key" >"$work/keys"
  [[ $(srv key reload --json | json 'd[0]["sessions_ended"]') == 1 ]] || fail "reload"
  wait_for 30 "the refusal of a key that was taken away" says 'refused our key "vm7"'
  dd if="$device" of="$work/read" bs=4k count=16 iflag=direct status=none &
  local reading=$!
  cat "$work/both" >"$work/keys"
  grep -q "2 keys, 0 sessions ended" <<<"$(srv key reload)" || fail "reload"
  wait "$reading" || fail "what was held failed"
  cmp "$work/read" "$work/data" || fail "data"
  ctl unmap disk >/dev/null
  stop_process "$daemon_pid"
  stop_process "$server_pid"
  port=
}
whole auto
whole tcp

# A client with a key takes no server without.
start_server "$work/root" --node-name "$node.server"
start_daemon --key "$work/vm7.key" # for all maps
refused "asks for no key, though we have key \"vm7\"" ctl map "127.0.0.1:$port/disk.img"
refused "no node here serves with --keys" srv key reload
