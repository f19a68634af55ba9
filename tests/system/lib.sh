# What system tests share. Source it; then use start_server, start_daemon, ctl.
# Each test has a folder and names of its own, and leaves neither processes nor mounts behind.
set -euo pipefail
: "${BRAID_BIN_DIR:?run me through ctest, or set BRAID_BIN_DIR}"
braid=$BRAID_BIN_DIR/braid
braidd=$BRAID_BIN_DIR/braidd
node=test.$$
work=$(mktemp -d "${TMPDIR:-/tmp}/braid-test.XXXXXX")
server_pid=
daemon_pid=
port=

skip() {
  echo "skipped: $*"
  exit 77
}
fail() {
  echo "FAILED: $*" >&2
  for log in "$work"/*.log; do
    [[ -s $log ]] && { echo "--- ${log##*/}" && tail -n 40 "$log"; } >&2
  done
  exit 1
}
need_root() { ((EUID == 0)) || skip "needs root"; }
need() {
  local tool
  for tool; do command -v "$tool" >/dev/null || skip "needs $tool"; done
}
running() { [[ ${1:-} ]] && kill -0 "$1" 2>/dev/null; }

# wait_for SECONDS WHAT COMMAND...: until the command succeeds.
wait_for() {
  local limit=$((SECONDS + $1)) what=$2
  shift 2
  until "$@"; do
    ((SECONDS < limit)) || fail "$what did not happen in time"
    read -rt 0.05 <> <(:) || true
  done
}

server_ready() {
  running "$server_pid" || fail "the server ended"
  port=$(sed -nE 's/^serving .* on [^ ]*:([0-9]+) .*/\1/p' "$work/server.log" | tail -n 1)
  [[ $port ]]
}
# start_server [ARGUMENT...]: braid serve; on the port it had before, if it ran before.
start_server() {
  local listen=127.0.0.1:${port:-0}
  : >"$work/server.log"
  "$braid" serve --listen "$listen" "$@" >"$work/server.log" 2>&1 &
  server_pid=$!
  wait_for 30 "the start of the server" server_ready
}
kill_server() {
  kill -KILL "$server_pid"
  wait "$server_pid" 2>/dev/null || true
}

daemon_ready() {
  running "$daemon_pid" || fail "the daemon ended"
  ctl list >/dev/null 2>&1
}
start_daemon() {
  "$braidd" --node-name "$node" "$@" >"$work/daemon.log" 2>&1 &
  daemon_pid=$!
  wait_for 30 "the start of the daemon" daemon_ready
}
ctl() { "$braid" --control "$node" "$@"; }

# field NAME: of the JSON object on standard input.
field() { python3 -c 'import json,sys; print(json.load(sys.stdin)[sys.argv[1]])' "$1"; }

stop_process() {
  running "$1" || return 0
  kill -TERM "$1"
  local limit=$((SECONDS + 15))
  while running "$1" && ((SECONDS < limit)); do read -rt 0.05 <> <(:) || true; done
  # A daemon with a device in use waits for its user; this is for tests that have failed.
  running "$1" && kill -KILL "$1"
  wait "$1" 2>/dev/null
}
at_end=:  # a test's own part of the clean-up
clean_up() {
  local status=$?
  set +e
  grep " $work/" /proc/self/mounts | cut -d ' ' -f 2 | xargs -r umount -l
  stop_process "$daemon_pid"
  stop_process "$server_pid"
  jobs -p | xargs -r kill 2>/dev/null
  "$at_end"
  rm -rf "$work"
  exit "$status"
}
trap clean_up EXIT
