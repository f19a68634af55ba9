#!/usr/bin/env bash
# A seed gives the same run in any process: other addresses, another environment, another folder.
set -euo pipefail
: "${BRAID_BIN_DIR:?run me through ctest, or set BRAID_BIN_DIR}"

trace_of() {
  local out
  out=$("$@" "$BRAID_BIN_DIR/braid-sim" --seed 3 --round-seconds 5) || {
    printf '%s\n' "$out" >&2
    exit 1
  }
  [[ $out =~ trace\ ([0-9a-f]{16}) ]] || { echo "FAILED: no trace in: $out" >&2 && exit 1; }
  echo "${BASH_REMATCH[1]}"
}

here=$(trace_of env)
elsewhere=$(cd / && trace_of env -i LC_ALL=C SOME_OTHER_ENVIRONMENT="$(printf '%4096s' x)")
[[ $here == "$elsewhere" ]] || {
  echo "FAILED: two processes ran seed 3 with traces $here and $elsewhere" >&2
  exit 1
}
echo "trace $here, twice"
