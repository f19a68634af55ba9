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

for verb in serve map unmap list show why sessions close close-session remap resize path metrics \
  top; do
  expect 0 "Examples:" "$braid" "$verb" --help
done
expect 2 "subcommand" "$braid"
expect 2 "nonsense" "$braid" nonsense
expect 2 "nothing to export" "$braid" serve
expect 2 "give --memory NAME=SIZE, too" "$braid" serve "$work" --huge-pages
expect 1 "$work/missing" "$braid" serve "$work/missing" --listen 127.0.0.1:0
expect 2 "max-io" "$braid" serve "$work" --max-io 5000
expect 1 "must be the last part" "$braid" serve "$work/%SESSNAME%/x" --listen 127.0.0.1:0
expect 2 "at most 128" "$braid" serve "$work" --queue-depth 129
expect 2 "at most 32" "$braid" serve "$work" --queue-depth 64 --max-io 4M
expect 2 "queue-depth" "$braid" serve "$work" --queue-depth 1
expect 2 'size "x"' "$braid" serve --memory ram=x
expect 2 "NAME=SIZE" "$braid" serve --memory ram
expect 2 '"kind": "invalid"' "$braid" map --name --json
expect 2 '"kind": "invalid"' "$braid" nonsense --json
expect 2 '"kind": "invalid"' "$braidd" --nonsense --json
expect 2 "nothing is to be exported" "$braidd" --listen 127.0.0.1:0
expect 0 "## [[map]]: " "$braid" config reference
"$braid" config reference --json | python3 -c 'import json, sys
keys = {(group["name"], key["name"]) for group in json.load(sys.stdin)["groups"]
        for key in group["keys"]}
assert ("serve", "listen") in keys, keys' || fail "config reference --json"
expect 2 "export is missing" "$braid" map 127.0.0.1
expect 1 "no Braid node named \"none.$$\"" "$braid" --control "none.$$" map 127.0.0.1/x
expect 1 "no Braid node named" ctl show x

# `braid` has no node in it, and says so where braidd is not beside it; it is called by any name.
mkdir "$work/alone"
cp "$braid" "$work/alone/other-name"
expect 1 "$work/alone/braidd: No such file" "$work/alone/other-name" serve "$work"
expect 1 '"kind": "not-found"' "$work/alone/other-name" key new vm7 --json
ln -s "$braid" "$work/another-name"
expect 2 "max-io" "$work/another-name" serve "$work" --max-io 5000

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
refuse "there is no" /etc/passwd "/$work/root/disk"
refuse "leads out of the export root" out up
refuse "FIFO" pipe
refuse "directory" folder .
expect 2 "254 are the most" ctl map "127.0.0.1:$port/$long" --name refused
expect 1 "nobody listens" ctl map 127.0.0.1:1/disk

# Nothing half-done remains of all those refusals.
"$braid" --control "$node" list --json >"$work/list.json"
python3 - "$work/list.json" <<'PY' || fail "list --json is wrong"
import json, sys
nodes = json.load(open(sys.argv[1]))["nodes"]
assert len(nodes) == 1
assert {"node", "role", "pid", "heap_used_bytes", "devices", "exports", "server"} <= nodes[0].keys()
assert nodes[0]["devices"] == [], "a refused device is listed"
PY
expect 1 '"kind": "not-found"' ctl --json show x
stop_process "$server_pid"
server_pid=

# A node says no to wrong calls and goes on; a stopped one is named, and hides no other.
python3 - "$node" <<'PY' || fail "the daemon does not take wrong calls well"
import json, socket, sys
def ask(text):
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(60)
    s.connect("\0braid.control." + sys.argv[1])
    s.sendall(text + b"\n")
    return json.loads(s.makefile().readline())
def call(method, params):
    return ask(json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode())
assert "error" in call("unmap", {"name": "x", "force": "yes"})
assert "error" in call("map", {"target": 5})
assert "error" in ask(b"\xff\xfe")
assert "result" in call("status", {})
PY
expect 1 "UTF-8" ctl map $'127.0.0.1/\xff'
expect 2 "--node-name" "$braid" --control x serve "$work/root"
start_server "$work/root"
kill -STOP "$server_pid"
expect 1 "did not answer" "$braid" --control "serve.$server_pid" list
expect 0 "did not answer" "$braid" list
"$braid" list --json >"$work/list.json" 2>/dev/null
grep -qF "\"$node\"" "$work/list.json" || fail "a stopped node hides the daemon"
expect 1 "did not answer" "$braid" metrics
status=0
"$braid" metrics --json >"$work/metrics.json" 2>"$work/words" || status=$?
((status == 1)) || fail "metrics --json ended with $status beside a stopped node"
[[ ! -s $work/words ]] || fail "metrics --json says it in words: $(cat "$work/words")"
python3 - "$work/metrics.json" "$node" "serve.$server_pid" <<'PY' || fail "metrics --json"
import json, sys
told = json.load(open(sys.argv[1]))
assert sys.argv[2] in [node["node"] for node in told["nodes"]], told["nodes"]
assert [why for why in told["silent"] if sys.argv[3] in why["message"] and why["kind"]], told
PY
kill -CONT "$server_pid"
expect 0 "breaches" "$braid" --control "serve.$server_pid" show "serve.$server_pid"
expect 0 "it " "$braid" --control "$node" why "$node"
expect 1 "is a node, not a mapped device" ctl unmap "$node"

# Nodes are asked beside each other: two that answer only when both were asked. On a busy machine
# that may take longer than a node is waited for: then again.
: >"$work/pair.log"
python3 - "pair.$$" >"$work/pair.log" <<'PY' &
import json, socket, sys, threading
both = threading.Barrier(2)
def serve(name):
    s = socket.socket(socket.AF_UNIX)
    s.bind("\0braid.control." + name)
    s.listen()
    both.wait()
    print("ready", flush=True)
    while True:
        c, _ = s.accept()
        c.makefile().readline()
        try:
            both.wait(30)
            status = {"node": name, "role": "test", "devices": [], "exports": [], "notes": []}
            c.sendall(json.dumps({"jsonrpc": "2.0", "id": 1, "result": status}).encode() + b"\n")
        except threading.BrokenBarrierError:
            both.reset()
        except OSError:
            pass
        c.close()
for end in "ab":
    threading.Thread(target=serve, args=(f"{sys.argv[1]}.{end}",)).start()
PY
pair_pid=$!
wait_for_line 60 "the start of two nodes" "$work/pair.log" ready "$pair_pid"
both_answer() {
  "$braid" list --json >"$work/list.json" 2>/dev/null
  grep -qF "\"pair.$$.a\"" "$work/list.json" && grep -qF "\"pair.$$.b\"" "$work/list.json"
}
wait_for 120 "the answer of two nodes that wait for each other" both_answer
kill "$pair_pid"

# Somebody else's node is not believed.
if ((EUID == 0)); then
  other="other.$$"
  : >"$work/other.log"
  python3 - "$other" <<'PY' >"$work/other.log" &
import os, socket, sys
os.setuid(65534)
s = socket.socket(socket.AF_UNIX)
s.bind("\0braid.control." + sys.argv[1])
s.listen()
print("ready", flush=True)
while True:
    c, _ = s.accept()
    try:
        c.makefile().readline()
        c.sendall(b'{"jsonrpc":"2.0","id":1,"result":5}\n')
    except OSError:
        pass  # who does not believe us has hung up
PY
  other_pid=$!
  wait_for_line 60 "the start of another user's node" "$work/other.log" ready "$other_pid"
  expect 0 "run by user 65534" "$braid" list
  expect 1 "does not understand" "$braid" --control "$other" list
  kill "$other_pid"
  # Nor does ours answer them.
  as_nobody=(setpriv --reuid 65534 --clear-groups)
  if "${as_nobody[@]}" "$braid" --version >/dev/null 2>&1; then
    expect 1 "user 0" "${as_nobody[@]}" "$braid" --control "$node" list
  fi
fi
