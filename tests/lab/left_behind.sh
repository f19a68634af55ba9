# For tests/lab/kernel_peers: that many mappings leave nothing behind, neither of RDMA nor of
# Braid's processes nor of the memory of the machine.
: "${work:?source tests/system/lib.sh first}" "${braid:?}" "${rounds:?}"

# All that the kernel counts of RDMA: protection domains, CQs, QPs, CM ids, registered memory,
# contexts; of both ends, the kernel's own and those of processes.
rdma_objects() { rdma resource show; }
rdma_connections() { rdma resource show qp | grep -c "link $1/1 .* type RC "; }  # DEVICE
connections_are() { (($(rdma_connections "$1") == $2)); }
no_more_rdma_objects() { [[ $(rdma_objects) == "$1" ]]; }
count_in() { find "$1" -mindepth 1 -maxdepth 1 | wc -l; }
rss_kb_of() { awk '/^VmRSS:/ { print $2 }' "/proc/$1/status"; }
heap_kb_of() {  # NODE
  "$braid" --control "$1" list --json | python3 -c '
import json, sys
print(json.load(sys.stdin)["nodes"][0]["heap_used_bytes"] // 1024)'
}
# The most of a few looks: some of what was freed is on its way.
free_kb() {
  local look
  for ((look = 0; look < 5; look++)); do
    sync
    echo 3 >/proc/sys/vm/drop_caches
    awk '/^MemAvailable:/ { print $2 }' /proc/meminfo
  done | sort -n | tail -n 1
}
# not_more WHAT BEFORE AFTER SLACK
not_more() {
  echo "$1: $2 before, $3 after"
  (($3 <= $2 + $4)) || fail "$1: $3 after $rounds rounds, $2 before"
}
# What may be more after 100 rounds though nothing is lost; memory in KiB. Seen in several runs:
# - a process: 6 KiB of heap: what its threads keep for the next time counts as in use. 64 KiB: 655
#   bytes of each of 100 rounds.
# - its threads: workers of io_uring and of the executor come and go, one for each CPU at most.
# - the machine: it swings by 20 MiB, in no proportion to the rounds: caches of each CPU, logs in
#   memory, what was freed and not given back yet. 24 MiB: 246 KiB of each of 100 rounds, which is
#   two of the 64 chunks of a session.
slack_of_process_kb=64
slack_of_machine_kb=24576
# leaves_nothing ROUND NO-SESSIONS NODE PID: runs the command ROUND many times, until NO-SESSIONS
# says that the server has none. Braid's process, and the machine, have no more afterwards than
# after the first few, which fill caches.
leaves_nothing() {
  local round=$1 no_sessions=$2 node=$3 pid=$4 objects threads fds rss heap free started i
  for ((i = 0; i < 10; i++)); do "$round"; done
  wait_for 60 "the end of the sessions at the server" "$no_sessions"
  objects=$(rdma_objects) free=$(free_kb) heap=$(heap_kb_of "$node")
  fds=$(count_in "/proc/$pid/fd") threads=$(count_in "/proc/$pid/task") rss=$(rss_kb_of "$pid")
  started=$SECONDS
  for ((i = 1; i <= rounds; i++)); do
    "$round"
    ((i % 20)) || echo "after $i: $(heap_kb_of "$node") KiB of heap, $(free_kb) KiB free"
  done
  echo "mapped and unmapped $rounds times in $((SECONDS - started)) s"
  wait_for 60 "the end of the sessions at the server" "$no_sessions"
  wait_for 60 "the end of all that RDMA had: $objects" no_more_rdma_objects "$objects"
  printf 'RDMA has what it had:\n%s\n' "$objects"
  not_more "descriptors of Braid" "$fds" "$(count_in "/proc/$pid/fd")" 0
  not_more "threads of Braid" "$threads" "$(count_in "/proc/$pid/task")" "$(nproc)"
  not_more "KiB of Braid's heap" "$heap" "$(heap_kb_of "$node")" "$slack_of_process_kb"
  not_more "resident KiB of Braid" "$rss" "$(rss_kb_of "$pid")" "$slack_of_process_kb"
  not_more "KiB of the machine in use, against the start" 0 $((free - $(free_kb))) \
    "$slack_of_machine_kb"
}
