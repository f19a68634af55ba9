# For lab scripts, after tests/system/lib.sh: a device that is mapped in the foreground, and fio
# that verifies what it wrote to one.
: "${work:?source tests/system/lib.sh first}" "${braid:?}"

# map_foreground NODE RDMA-DEVICES TARGET ARGUMENT...: the process is left in $map_pid, what it says
# in NODE.log, the device's path in $device. An emulated machine that others keep from running may
# not answer a client in the seconds that it waits: then again, twice at most, and told.
map_foreground() {
  local log=$work/$1.log tries=3
  while :; do
    : >"$log"
    "$braid" map --foreground --node-name "$1" --device "$2" "$3" "${@:4}" >"$log" 2>&1 &
    map_pid=$!
    grep -qm 1 '^/dev/' < <(timeout 60 tail -n +1 -f --pid="$map_pid" -- "$log") && break
    grep 'did not answer within' "$log" && ((--tries > 0)) || fail "mapping $3"
  done
  # shellcheck disable=SC2034  # for the script
  device=$(grep -oE '^/dev/[^ ]*' "$log")
}
unmap_foreground() {
  kill -TERM "$map_pid"
  wait_for_end 60 "the end of the mapping" "$map_pid"
}

# verify DEVICE [FIO-OPTION...]: writes and reads 8 MiB, if no option says more, and verifies. A
# request that fails is a failure, one that took long is not: how long is kept for stop_verifying.
verify() {
  (cd "$work" && timeout -k 1 "${fio_limit:-180}" fio --name=verify --filename="$1" --direct=1 \
    --ioengine=libaio --iodepth=16 --rw=randrw --bsrange=4k-128k --size=8M --verify=crc32c \
    --verify_backlog=64 --verify_fatal=1 --output-format=json "${@:2}") >"$work/fio.log" 2>&1 ||
    fail "fio on $1 found other data than it wrote, or an error, or had no end"
  judge_fio "$work/fio.log" >>"$work/longest_ms" || fail "fio on $1 did not do what it was for"
}
# judge_fio LOG: prints the longest time of a request in ms. False if there was an error, or nothing
# was written, or nothing read.
judge_fio() {
  python3 - "$1" <<'PY'
import json, sys
text = open(sys.argv[1]).read()
job, = json.loads(text[text.index("{"):])["jobs"]
ways = [job[way] for way in ("read", "write")]
if job["error"] != 0 or job.get("total_err", 0) != 0 or not all(way["total_ios"] for way in ways):
    sys.exit(f"error {job['error']}, {[way['total_ios'] for way in ways]} reads and writes")
print(max(way["lat_ns"]["max"] for way in ways) // 1000000)
PY
}
verify_until_stopped() {
  : >"$work/longest_ms"
  until [[ -e $work/stop ]]; do verify "$@"; done
}
# stop_verifying PID WHAT: ends verify_until_stopped, which is process PID, and tells how long the
# longest request took.
stop_verifying() {
  touch "$work/stop"
  wait "$1" || fail "fio failed: $2"
  rm "$work/stop"
  local runs longest
  runs=$(wc -l <"$work/longest_ms") longest=$(sort -n "$work/longest_ms" | tail -n 1)
  ((runs > 0)) || fail "fio ran not once: $2"
  echo "$2: fio error 0 in $runs runs, the longest request took $longest ms"
}
