#!/usr/bin/env bash
# What a person gets wrong is answered in words that name it; exit code 1 is failed, 2 is usage.
source "$(dirname "$0")/lib.sh"

# expect CODE TEXT COMMAND...: the command ends with CODE and says TEXT.
expect() {
  local code=$1 text=$2 status=0
  shift 2
  "$@" >"$work/out" 2>&1 || status=$?
  ((status == code)) || fail "\"$*\" ended with $status, not $code: $(cat "$work/out")"
  grep -qF -- "$text" "$work/out" || fail "\"$*\" did not say \"$text\": $(cat "$work/out")"
}

for verb in serve map unmap list show why; do
  expect 0 "Examples:" "$braid" "$verb" --help
done
expect 2 "subcommand" "$braid"
expect 2 "nonsense" "$braid" nonsense
expect 2 "nothing to export" "$braid" serve
expect 1 "$work/missing" "$braid" serve "$work/missing" --listen 127.0.0.1:0
expect 2 "max-io" "$braid" serve "$work" --max-io 5000
expect 2 'size "x"' "$braid" serve --memory ram=x
expect 2 "NAME=SIZE" "$braid" serve --memory ram
expect 2 "export is missing" "$braid" map 127.0.0.1
expect 1 "no Braid node named \"none.$$\"" "$braid" --control "none.$$" map 127.0.0.1/x
expect 1 "no Braid node named" ctl show x

mkdir "$work/root" "$work/root/folder"
truncate -s 1M "$work/root/disk" "$work/outside"
mkfifo "$work/root/pipe"
ln -s "$work/outside" "$work/root/out"
ln -s ../outside "$work/root/up"
ln -s disk "$work/root/alias"
start_server "$work/root" --memory ram=1M
expect 1 "already" "$braid" serve "$work/root" --listen "127.0.0.1:$port"
start_daemon
long=$(printf 'x%.0s' {1..256})

# refuse TEXT NAME...: mapping any of the names fails and says TEXT.
refuse() {
  local text=$1 name
  shift
  for name; do expect 1 "$text" ctl map "127.0.0.1:$port/$name" --name refused; done
}
refuse "there is no" nothing folder/nothing
refuse ".." .. ../outside folder/../../outside
refuse "absolute" /etc/passwd "/$work/root/disk"
refuse "leads out of the export root" out up
refuse "FIFO" pipe
refuse "directory" folder .
refuse "at most" "$long"
expect 1 "nobody listens" ctl map 127.0.0.1:1/disk

# Nothing half-done remains of all those refusals.
"$braid" --control "$node" list --json >"$work/list.json"
python3 - "$work/list.json" <<'PY' || fail "list --json is wrong"
import json, sys
nodes = json.load(open(sys.argv[1]))["nodes"]
assert len(nodes) == 1
assert {"node", "role", "pid", "devices", "exports", "server"} <= nodes[0].keys()
assert nodes[0]["devices"] == [], "a refused device is listed"
PY
expect 1 '"kind": "not-found"' ctl --json show x
stop_process "$server_pid"
server_pid=
