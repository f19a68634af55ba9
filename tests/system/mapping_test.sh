#!/usr/bin/env bash
# A server that stops while the kernel gets a device of it: whoever wants no more of the mapping
# gets out of it, and nothing is left.
source "$(dirname "$0")/lib.sh"
need_root
[[ -e /dev/fuse && -e /dev/loop-control ]] || skip "needs FUSE and loop devices"

mkdir "$work/root"
truncate -s 64M "$work/root/disk.img"
start_server "$work/root"
start_daemon
rounds_met=0  # in which the mapping was under way when the server had stopped

# map_and_stop: begins to map, and stops the server once it has opened the disk for that.
map_and_stop() {
  local opened
  opened=$(grep -c "opened 'disk.img'" "$work/server.log" || true)
  mapped=$(mappings)
  "$braid" --control "$node" map "127.0.0.1:$port/disk.img" >"$work/map.log" 2>&1 &
  map_pid=$!
  until (($(grep -c "opened 'disk.img'" "$work/server.log") > opened)); do
    running "$map_pid" || fail "map ended without the disk: $(cat "$work/map.log")"
  done
  kill -STOP "$server_pid"
}
mappings() { grep -c '] mapped ' "$work/daemon.log" || true; }
done_or_given_up() { (($(mappings) > mapped)) || nothing_is_mapped; }
nothing_is_mapped() { grep -q '"devices": \[\]' <<<"$(ctl list --json)"; }

for ((attempt = 1; attempt <= 20 && rounds_met < 4; ++attempt)); do
  map_and_stop
  if ((attempt % 2)); then
    ctl unmap disk.img --force >"$work/unmap.log" 2>&1 || fail "force is refused"
    if wait "$map_pid"; then met=0; else met=1; fi
  else
    # Its caller goes; a mapping that was done by then stays, even if the caller told nobody.
    kill -TERM "$map_pid" 2>/dev/null || true
    wait "$map_pid" || true
    wait_for 30 "the mapping, or its end" done_or_given_up
    if nothing_is_mapped; then met=1; else met=0; fi
    ((met)) || ctl unmap disk.img --force >"$work/unmap.log" 2>&1 || fail "force is refused"
  fi
  wait_for 30 "the end of the mapping" nothing_is_mapped
  kill -CONT "$server_pid"
  rounds_met=$((rounds_met + met))
done
((rounds_met)) || fail "each of $attempt mappings was faster than the server's end"
echo "$rounds_met of $((attempt - 1)) mappings were under way when the server stopped"
! grep -qs "$node" /sys/block/*/{loop/backing_file,backend} || fail "a device is left"
