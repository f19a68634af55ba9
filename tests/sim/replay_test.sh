#!/usr/bin/env bash
# A seed gives the same run in any process: other addresses, another environment, another folder,
# and with its log shown. Seed 7 has peers of whom more is said than is logged.
set -euo pipefail
: "${BRAID_BIN_DIR:?run me through ctest, or set BRAID_BIN_DIR}"

# trace_of SEED LOG COMMAND...: COMMAND runs braid-sim; LOG: none, info or debug
trace_of() {
  local seed=$1 level=$2 log=() out
  shift 2
  [[ $level == none ]] || log=(--log "$level")
  out=$("$@" "$BRAID_BIN_DIR/braid-sim" --seed "$seed" --round-seconds 5 "${log[@]}" 2>&1) || {
    tail -n 40 <<<"$out" >&2
    exit 1
  }
  [[ $level == none || $out == *"were not logged"* ]] || {
    echo "FAILED: nothing was left out of the log of seed $seed: take one with more of it" >&2
    exit 1
  }
  [[ $out =~ trace\ ([0-9a-f]{16}) ]] || { echo "FAILED: no trace in: $out" >&2 && exit 1; }
  echo "${BASH_REMATCH[1]}"
}

same() {
  [[ $2 == "$3" ]] || { echo "FAILED: $1: traces $2 and $3" >&2 && exit 1; }
}

here=$(trace_of 3 none env)
elsewhere=$(cd / && trace_of 3 none env -i LC_ALL=C SOME_OTHER_ENVIRONMENT="$(printf '%4096s' x)")
same "two processes ran seed 3" "$here" "$elsewhere"

silent=$(trace_of 7 none env)
same "seed 7 without its log and with --log info" "$silent" "$(trace_of 7 info env)"
same "seed 7 without its log and with --log debug" "$silent" "$(trace_of 7 debug env)"
echo "traces $here and $silent, each time"
