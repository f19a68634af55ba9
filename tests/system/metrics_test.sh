#!/usr/bin/env bash
# Metrics by HTTP and by `braid metrics`, judged by a checker that knows the format only, by
# Prometheus' own where it is installed, and by its rules of docs/operation.md; braid top in a pipe
# and on a terminal, while a node is stopped and ends.
source "$(dirname "$0")/lib.sh"
need python3
here=$(cd "$(dirname "$0")" && pwd)
docs=$here/../../docs

# get URL: its body; fails unless the status is 200.
get() {
  python3 -c 'import sys, urllib.request
sys.stdout.buffer.write(urllib.request.urlopen(sys.argv[1], timeout=60).read())' "$1"
}
checked() { python3 "$here/exposition.py" <"$1" || fail "$1 is no text for Prometheus"; }
judge() { printf '%b' "$1" | python3 "$here/exposition.py"; }
refused() { ! judge "$1" >/dev/null || fail "the checker took: $1"; }

head='# HELP a_total h\n# TYPE a_total counter\n'
judge "${head}a_total{x=\"\\\\\\\\ \\\\\\\\n\"} 1\n" || fail "the checker refuses what is right"
refused "${head}a_total 1"
refused "${head}a_total{x=\"y} 1\n"
refused "${head}a_total{x=\"\\xff\"} 1\n"
refused "${head}a_total 1\na_total 1\n"
refused "${head}b_total 1\n"
refused "${head}a_total one\n"
refused '# HELP a h\n# TYPE a counter\na 1\n'
refused '# HELP h_s h\n# TYPE h_s histogram\nh_s_bucket{le="+Inf"} 2\nh_s_sum 1\nh_s_count 3\n'

start_server --memory ram=8M --null "odd\"name
x=1M" --node-name "$node.server" --metrics 127.0.0.1:0
url=$(sed -nE 's/^metrics: //p' "$work/server.log")
[[ $url == http://127.0.0.1:*/metrics ]] || fail "the server told no address of its metrics: $url"
get "$url" >"$work/server.txt"
checked "$work/server.txt"
grep -qF 'export="odd\"name\nx"' "$work/server.txt" || fail "the odd name is not there"
grep -q "^braid_server_sessions{node=\"$node.server\"} 0$" "$work/server.txt" || fail "no sessions"
get "${url%/metrics}/other" 2>/dev/null && fail "/other is something"

"$braid" --control "$node.server" metrics >"$work/verb.txt"
checked "$work/verb.txt"
diff <(grep '^# ' "$work/server.txt") <(grep '^# ' "$work/verb.txt") ||
  fail "braid metrics has other families than GET /metrics"
status=0
"$braidd" --node-name "$node.other" --metrics "${url#http://}" 2>"$work/other" || status=$?
((status == 2)) || fail "an address with a path was taken: $status"
status=0
taken=$(sed -E 's,http://(.*)/metrics,\1,' <<<"$url")
"$braidd" --node-name "$node.other" --metrics "$taken" 2>"$work/other" || status=$?
((status == 1)) || fail "a taken port ended with $status"
grep -q "another program listens at" "$work/other" || fail "a taken port: $(cat "$work/other")"

if command -v promtool >/dev/null; then
  for text in server verb; do
    promtool check metrics <"$work/$text.txt" || fail "promtool does not take $text.txt"
  done
  python3 "$here/rules_of.py" "$docs/operation.md" "$work"
  promtool check rules "$work/braid.rules.yml" || fail "the rules of docs/operation.md are wrong"
  (cd "$work" && cp "$here/braid.rules_test.yml" . && promtool test rules braid.rules_test.yml) ||
    fail "the rules of docs/operation.md do not fire as they should"
else
  echo "NOT CHECKED: promtool (package prometheus) is not installed"
fi

"$braid" --control "$node.server" top --interval 100ms --count 2 >"$work/top.txt"
(($(grep -c '^export  *ram ' "$work/top.txt") == 2)) || fail "top: $(cat "$work/top.txt")"
! grep -q $'\x1b' "$work/top.txt" || fail "top writes escapes into a file"
"$braid" --control "$node.server" top --interval 100ms --count 2 --json >"$work/top.json"
python3 -c 'import json,sys
looks = [json.loads(line) for line in open(sys.argv[1])]
rates = [row["rates"] for row in looks[1]["rows"] if row["name"] == "ram"]
assert len(looks) == 2 and rates[0]["reads_per_s"] == 0, looks' "$work/top.json" ||
  fail "top --json: $(cat "$work/top.json")"
python3 "$here/top_on_terminal.py" "$braid" "$node.server" || fail "top on a terminal"
for wrong in "--interval 1ms" "--interval x" "--count 0" "--sort size"; do
  status=0
  # shellcheck disable=SC2086 # two words
  "$braid" top $wrong >/dev/null 2>&1 || status=$?
  ((status == 2)) || fail "top $wrong ended with $status"
done

# A node that is stopped, goes on, and is killed: top lives, and says so.
"$braid" --control "$node.server" top --interval 100ms --count 100000 >>"$work/watch.txt" 2>&1 &
top_pid=$!
wait_for_line 60 "a first table" "$work/watch.txt" '^export ' "$top_pid"
kill_server
wait_for_line 60 "the end of the node" "$work/watch.txt" '^silent: .*no Braid node' "$top_pid"
start_server --memory ram=8M --node-name "$node.server" --metrics 127.0.0.1:0
: >"$work/watch.txt"
wait_for_line 60 "the node's return" "$work/watch.txt" '^export  *ram .* 0 ' "$top_pid"
kill -TERM "$top_pid"
wait "$top_pid" || fail "top ended with $?"
