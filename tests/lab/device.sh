# For lab scripts, after tests/system/lib.sh: a device that is mapped in the foreground, and fio
# that verifies what it wrote to one.
: "${work:?source tests/system/lib.sh first}" "${braid:?}"

# map_foreground NODE RDMA-DEVICES TARGET ARGUMENT...: the process is left in $map_pid, what it says
# in NODE.log, the device's path in $device. An emulated machine that others keep from running may
# not answer a client in the seconds that it waits: then again, twice at most, and counted
# (judge_repeats).
maps_made=0 maps_repeated=0
map_foreground() {
  local log=$work/$1.log tries=3
  maps_made=$((maps_made + 1))
  while :; do
    : >"$log"
    "$braid" map --foreground --node-name "$1" --device "$2" "$3" "${@:4}" >"$log" 2>&1 &
    map_pid=$!
    grep -qm 1 '^/dev/' < <(timeout 60 tail -n +1 -f --pid="$map_pid" -- "$log") && break
    grep -E 'did not answer (within|to the proof)|no answer to .*, for want of a path' "$log" &&
      ((--tries > 0)) || fail "mapping $3"
    maps_repeated=$((maps_repeated + 1))
  done
  # shellcheck disable=SC2034  # for the script
  device=$(grep -oE '^/dev/[^ ]*' "$log")
}
# judge_repeats: for the end of a script. One of ten mappings may have been made again, and one.
judge_repeats() {
  echo "mapped $maps_made times, and $maps_repeated times again because nobody answered in time"
  ((maps_repeated <= 1 + maps_made / 10)) || fail "too many mappings were not answered in time"
}
unmap_foreground() {
  kill -TERM "$map_pid"
  wait_for_end 60 "the end of the mapping" "$map_pid"
}

# verify DEVICE [FIO-OPTION...]: writes, syncs and reads 8 MiB, if no option says more, and
# verifies: a device with a write cache, as that of a file, gets a flush for each sync. A
# request that fails is a failure, one that took long is not: how long is kept for stop_verifying.
# With blocks of several sizes fio takes an older block for good, if it is whole; with $one_size,
# which counts passes instead of time, it knows the newest by its number. No two runs write alike.
one_size=(--bs=16k --loops=1000000)
verify() {
  (cd "$work" && timeout -k 1 "${fio_limit:-180}" fio --name=verify --filename="$1" --direct=1 \
    --ioengine=libaio --iodepth=16 --rw=randrw --bsrange=4k-128k --size=8M --fsync=16 \
    --randrepeat=0 --verify=crc32c --verify_backlog=64 --verify_fatal=1 --group_reporting \
    --output-format=json "${@:2}") >"$work/fio.log" 2>&1 ||
    fail "fio on $1 found other data than it wrote, or an error, or had no end"
  judge_fio "$work/fio.log" >>"$work/longest_ms" || fail "fio on $1 did not do what it was for"
}
# judge_fio LOG: prints the longest time of a request in ms. False if there was an error, or nothing
# was written, or read, or synced.
judge_fio() {
  python3 - "$1" <<'PY'
import json, sys
text = open(sys.argv[1]).read()
job, = json.loads(text[text.index("{"):])["jobs"]
ways = {way: job[way] for way in ("read", "write", "sync")}
counts = {way: told["total_ios"] for way, told in ways.items()}
if job["error"] != 0 or job.get("total_err", 0) != 0 or not all(counts.values()):
    sys.exit(f"error {job['error']}, of each: {counts}")
print(max(told["lat_ns"]["max"] for told in ways.values()) // 1000000)
PY
}
verify_until_stopped() {
  : >"$work/longest_ms"
  # Of some seconds: while fio starts, in which it is slow here, no request is under way.
  until [[ -e $work/stop ]]; do
    verify "$@" --time_based --runtime=5
    verify "$@" "${one_size[@]}" --runtime=5
  done
}
# stop_verifying PID WHAT MOST-MS: ends verify_until_stopped, which is process PID, and judges how
# long the longest request took.
stop_verifying() {
  touch "$work/stop"
  wait "$1" || fail "fio failed: $2"
  rm "$work/stop"
  judge_longest "$2" "$3"
}
# judge_longest WHAT MOST-MS: of all runs of fio since $work/longest_ms was emptied. The longest
# request is as long as the longest pause: fio has one under way always.
judge_longest() {
  local runs longest
  runs=$(wc -l <"$work/longest_ms") longest=$(sort -n "$work/longest_ms" | tail -n 1)
  ((runs > 0)) || fail "fio ran not once: $1"
  echo "$1: fio error 0 in $runs runs, the longest request took $longest ms of at most $2"
  ((longest <= $2)) || fail "$1: a request took $longest ms, more than $2"
}

# How long a request may take when one of two paths is lost: it is missed after 0.9 s, a client with
# one reactor on an emulated machine is late by as much again.
# shellcheck disable=SC2034  # for the scripts
most_by_other_path_ms=10000
# And, beside the time without a cable, when it was the only one: an attempt that goes on when the
# cable is mended may last 5 s, the pause before the next 6 s, and what was held takes its time.
most_after_mending_ms=30000

# cut_under_fio NODE DEVICE CABLE SECONDS [FIO-OPTION...]: fio writes to $device and verifies, for
# $seconds, while the cable is cut for so long, in which $while_cut is done, and mended. It is cut
# when requests of fio go by it, and some of these must have been sent again: so up to three times,
# as a machine in emulation may be done with its requests before it has cut the cable.
while_cut=:
# has_requests DEVICE: asked of the kernel; a program that is started to ask takes seconds here.
has_requests() {
  local reads writes
  read -r reads writes <"/sys/block/${1##*/}/inflight"
  ((reads + writes > 0))
}
cut_under_fio() {
  local fio_pid began lasted resent tries=${cut_tries:-3}
  : >"$work/longest_ms"
  resent=$(device_json "$1" "$2" 'd["session"]["resent"]')
  verify "$device" "${one_size[@]}" --runtime="${seconds:?}" "${@:5}" &
  fio_pid=$!
  wait_for 60 "I/O before the cable is cut" has_requests "$device"
  began=$(date +%s%3N)
  cut_cable "$3"
  sleep "$4"  # lint: allow(sleep) long enough for heartbeats to miss it
  "$while_cut"
  mend_cable "$3"
  lasted=$(($(date +%s%3N) - began))
  wait "$fio_pid" || fail "fio failed over the cable that was cut"
  judge_longest "the only cable was cut for $lasted ms" $((lasted + most_after_mending_ms))
  resent=$(($(device_json "$1" "$2" 'd["session"]["resent"]') - resent))
  echo "requests sent again: $resent"
  ((resent > 0)) && return
  ((tries > 1)) || fail "no request was under way: the test does not test"
  cut_tries=$((tries - 1)) cut_under_fio "$@"
}
# verify_on_each_cpu: of $device, by four writers, each on a processor of its own:
# with nbd.ko and as many reactors, each of these has requests.
verify_on_each_cpu() {
  verify "$device" --size=2M --numjobs=4 --offset_increment=2M \
    --cpus_allowed="0-$(($(nproc) - 1))" --cpus_allowed_policy=split
}
# device_json NODE DEVICE EXPRESSION: of what `show` tells, `d`.
device_json() {
  "$braid" --control "$1" show "$2" --json |
    python3 -c 'import json, sys; d = json.load(sys.stdin); print(eval(sys.argv[1]))' "$3"
}
# each_reactor_sent NODE DEVICE COUNT: the device has as many reactors, and each has sent requests.
each_reactor_sent() {
  local sent
  sent=$(device_json "$1" "$2" 'd["requests"]["sent_by_reactor"]')
  echo "requests of each reactor: $sent"
  [[ $(device_json "$1" "$2" "len([n for n in $sent if n > 0]), d['reactors']") == "($3, $3)" ]] ||
    fail "not each of $3 reactors has sent requests: $sent"
}
