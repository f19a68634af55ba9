# What system tests share. Source it; then use start_server, start_daemon, ctl.
# Each test has a folder and names of its own, and leaves neither processes nor mounts behind.
set -euo pipefail
: "${BRAID_BIN_DIR:?run me through ctest, or set BRAID_BIN_DIR}"
braid=$BRAID_BIN_DIR/braid
braidd=$BRAID_BIN_DIR/braidd
node=test.$$
work=$(mktemp -d "${TMPDIR:-/tmp}/braid-test.XXXXXX")
never=$work/never  # a fifo that nobody writes to
mkfifo "$never"
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

# wait_for_line SECONDS WHAT FILE PATTERN [PID]: until the file, which PID writes, has such a line.
wait_for_line() {
  local limit=$1 what=$2 file=$3 pattern=$4 writer=${5:+--pid=$5}
  grep -qm 1 -E -- "$pattern" < <(timeout "$limit" tail -n +1 -f $writer -- "$file") ||
    fail "$what did not happen in time, or the process that would tell of it ended"
}
# wait_for_end SECONDS WHAT PID: until the process has ended. Ours that have are not there any more.
wait_for_end() {
  timeout "$1" tail -f /dev/null --pid="$3" -s 0.1 || fail "$2 did not happen in time"
}
# wait_for SECONDS WHAT COMMAND...: until the command succeeds. For what nobody announces.
wait_for() {
  local limit=$((SECONDS + $1)) what=$2
  shift 2
  until "$@"; do
    ((SECONDS < limit)) || fail "$what did not happen in time"
    read -rt 0.05 <>"$never" || true  # lint: allow(sleep) the time between two looks, no more
  done
}

# start_server [ARGUMENT...]: braid serve; on the port it had before, if it ran before.
start_server() {
  local listen=127.0.0.1:${port:-0}
  : >"$work/server.log"
  "$braid" serve --listen "$listen" "$@" >"$work/server.log" 2>&1 &
  server_pid=$!
  wait_for_line 60 "the start of the server" "$work/server.log" '^serving ' "$server_pid"
  port=$(sed -nE 's/^serving .* on [^ ]*:([0-9]+) .*/\1/p' "$work/server.log" | tail -n 1)
}
kill_server() {
  kill -KILL "$server_pid"
  wait "$server_pid" 2>/dev/null || true
}

start_daemon() {
  : >"$work/daemon.log"
  "$braidd" --node-name "$node" "$@" >"$work/daemon.log" 2>&1 &
  daemon_pid=$!
  wait_for_line 60 "the start of the daemon" "$work/daemon.log" '^braidd is ready' "$daemon_pid"
}
ctl() { "$braid" --control "$node" "$@"; }

# field NAME: of the JSON object on standard input.
field() { python3 -c 'import json,sys; print(json.load(sys.stdin)[sys.argv[1]])' "$1"; }

stop_process() {
  running "$1" || return 0
  kill -TERM "$1"
  # A daemon with a device in use waits for its user; this is for tests that have failed.
  timeout 15 tail -f /dev/null --pid="$1" -s 0.1 || kill -KILL "$1" 2>/dev/null
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
