# For tests/lab/kernel_peers: Linux's rnbd_client maps from `braid serve`.
: "${work:?source tests/system/lib.sh first}" "${braid:?}" "${parts:?}"
clt=/sys/devices/virtual/rnbd-client/ctl
linux_paths=/sys/devices/virtual/rtrs-client/lab/paths

cable0=ip:10.10.0.1@ip:10.10.0.2
cable1=ip:10.11.0.1@ip:10.11.0.2
linux_maps() {  # EXPORT [OPTION...]
  echo "sessname=lab path=$cable0 device_path=$1 ${*:2}" >$clt/map_device ||
    fail "rnbd_client does not map $1"
  local limit=$((SECONDS + 20))
  until [[ -b /dev/rnbd0 ]]; do
    ((SECONDS < limit)) || linux_has_no_device
    read -rt 0.05 <>"$never" || true  # lint: allow(sleep) the time between two looks, no more
  done
}
linux_has_no_device() {
  {
    ls -d /sys/block/rnbd* /dev/rnbd* || true
    dmesg | tail -n 30
  } >"$work/kernel.log" 2>&1
  fail "rnbd_client has not made /dev/rnbd0 in 20 s"
}
linux_unmaps() {
  echo normal >/sys/block/rnbd0/rnbd/unmap_device || fail "rnbd_client does not unmap"
  wait_for 20 "the end of the device of rnbd_client" test ! -e /sys/block/rnbd0
}
linux_session() { cat "$linux_paths"/*/state; }
linux_connected() { [[ $(linux_session) == connected ]]; }
linux_lost() { ! linux_connected; }
linux_path_up() { [[ $(cat "$linux_paths/$1/state") == connected ]]; }
linux_path_down() { ! linux_path_up "$1"; }
braid_sessions() {
  "$braid" --control srv sessions --json |
    python3 -c 'import json, sys; print(len(json.load(sys.stdin)["sessions"]))'
}
no_braid_sessions() { (($(braid_sessions) == 0)); }
linux_path_ios() {  # PATH: what it carried, and what of that another had that was lost
  awk '{ print $1 + $3, $6 }' "$linux_paths/$1/stats/rdma"
}
linux_path_carries_more() { (($(linux_path_ios "$1" | cut -d " " -f 1) > $2)); }

linux_one_path() {
  echo "== Linux maps from Braid: fio"
  linux_maps ram
  verify /dev/rnbd0
  local shown
  shown=$("$braid" --control srv sessions)
  echo "$shown"
  grep -Eq '^lab +Linux ' <<<"$shown" || fail "sessions does not tell whose client it is"
  grep -q 'claims no tenure' <<<"$shown" || fail "sessions does not tell what does not hold"
  grep -q 'claims no tenure' <<<"$("$braid" --control srv show srv --json)" ||
    fail "show of the server does not tell what does not hold"
  # One for each of its CPUs, and one for service.
  local connections carried
  connections=$(rdma_connections rxe_b0)
  ((connections == $(nproc) + 1)) || fail "$connections connections of $(nproc) CPUs"
  device=/dev/rnbd0 verify_on_each_cpu
  carried=$(linux_connections_carried)
  echo "requests of each connection, at the server: $carried"
  [[ $carried =~ ^([1-9][0-9]* ?){$(nproc)}$ ]] || fail "not each connection carries requests"

  echo "== the only cable is cut under fio and mended"
  linux_keeps --do_verify=0
  local reconnects
  reconnects=$(linux_reconnects)
  linux_cut_under_fio
  wait_for 180 "rnbd_client to find its server again" linux_connected
  (($(linux_reconnects) > reconnects)) || fail "no path was lost: the test does not test"
  linux_keeps --verify_only
  verify /dev/rnbd0
  linux_unmaps
}
linux_connections_carried() {
  "$braid" --control srv sessions --json | python3 -c '
import json, sys
(session,) = json.load(sys.stdin)["sessions"]
(path,) = session["path_statistics"]
print(*[each["reads"] + each["writes"] for each in path["connections"] if each["cid"] > 0])'
}
linux_reconnects() { awk '{ print $1 }' "$linux_paths"/*/stats/reconnects; }
# linux_keeps FIO-OPTION: 4 MiB that nothing else touches are written, or verified.
linux_keeps() {
  (cd "$work" && timeout -k 1 180 fio --name=keeps --filename=/dev/rnbd0 --direct=1 --rw=write \
    --bs=64k --offset=24M --size=4M --verify=crc32c --verify_fatal=1 --minimal "$1") \
    >"$work/fio.log" 2>&1 || fail "fio with $1: acknowledged data is gone, or was never written"
}
# Without a path Linux fails what is under way, and holds nothing: fio sees an I/O error, and no
# other data than it wrote.
linux_cut_under_fio() {
  local status=0
  (cd "$work" && timeout -k 1 180 fio --name=cut --filename=/dev/rnbd0 --direct=1 \
    --ioengine=libaio --iodepth=16 --rw=randrw "${one_size[@]}" --size=8M --verify=crc32c \
    --verify_backlog=64 --verify_fatal=1 --randrepeat=0 --runtime=60 --output-format=json) \
    >"$work/fio.log" 2>&1 &
  local fio_pid=$!
  wait_for 60 "I/O before the cable is cut" has_requests /dev/rnbd0
  cut_cable 0
  wait_for 120 "rnbd_client to miss its server" linux_lost
  mend_cable 0
  wait "$fio_pid" || status=$?
  ((status != 124)) || fail "fio has no end"
  grep -m 1 'error=Input/output error' "$work/fio.log" || fail "fio saw no I/O error"
  ! grep 'verify:' "$work/fio.log" || fail "fio found other data than it wrote"
}

linux_brief() {
  echo "== Linux maps from Braid: fio, briefly"
  linux_maps ram
  verify /dev/rnbd0
  linux_unmaps
}

# linux_carries PATH WHAT: the path carries I/O from now on.
linux_carries() {
  local carried
  carried=$(linux_path_ios "$1" | cut -d ' ' -f 1)
  wait_for 60 "I/O by path $1 $2" linux_path_carries_more "$1" "$carried"
}
# linux_cut_and_mend PATH OTHER CABLE: under fio, which goes on by the other path.
linux_cut_and_mend() {
  linux_carries "$1" "before its cable is cut"
  cut_cable "$3"
  # Its queue pairs try for 2 s each time, its heartbeats take half a minute.
  wait_for 120 "the loss of path $1" linux_path_down "$1"
  linux_carries "$2" "alone"
  linux_path_up "$2" || fail "the path whose cable is whole was lost, too"
  linux_path_down "$1" || fail "path $1 is up, though its cable is cut"
  mend_cable "$3"
  wait_for 180 "the return of path $1" linux_path_up "$1"
  linux_carries "$1" "again"
  echo "path $1: lost and back; it carried, and took over: $(linux_path_ios "$1")"
}

# Linux's heartbeats take half a minute, its queue pairs 2 s each time.
most_by_other_path_of_linux_ms=75000

# What either path has taken over from the other.
linux_failed_over() { awk '{ sum += $6 } END { print sum }' "$linux_paths"/*/stats/rdma; }

linux_two_paths() {
  echo "== Linux maps from Braid by two paths, each cut and mended under fio"
  linux_maps ram "path=$cable1"
  local path names=()
  for path in "$linux_paths"/*; do names+=("${path##*/}"); done
  ((${#names[@]} == 2)) || fail "rnbd_client has the paths ${names[*]}"
  [[ $("$braid" --control srv sessions) == *10.10.0.1*10.11.0.1* ]] ||
    fail "the server does not tell both paths"
  verify_until_stopped /dev/rnbd0 --size=28M &
  local fio_pid=$! cut tries moved
  for ((tries = 3; tries > 0; tries--)); do
    for cut in 0 1; do linux_cut_and_mend "${names[cut]}" "${names[1 - cut]}" "$cut"; done
    # Should no request have been on either path just when it was cut: again.
    moved=$(linux_failed_over)
    echo "requests that failed over: $moved"
    ((moved == 0)) || break
  done
  ((moved > 0)) || fail "no request was on a path that was cut: the test does not test"
  stop_verifying "$fio_pid" "two cables of which one was cut" "$most_by_other_path_of_linux_ms"
  verify /dev/rnbd0
  linux_unmaps
}

server_json() {  # EXPRESSION: of what `show` tells of the server, `d`
  "$braid" --control srv show srv --json |
    python3 -c 'import json, sys; d = json.load(sys.stdin)["server"]; print(eval(sys.argv[1]))' "$1"
}

linux_reactors() {
  echo "== two sessions of Linux at a server with two reactors: one serves both, and that is told"
  braid_serves --reactors 2
  echo "sessname=one path=$cable0 device_path=ram" >$clt/map_device ||
    fail "rnbd_client does not map one"
  echo "sessname=two path=$cable1 device_path=disk.img" >$clt/map_device ||
    fail "rnbd_client does not map two"
  wait_for 20 "the devices of rnbd_client" test -b /dev/rnbd0 -a -b /dev/rnbd1
  verify /dev/rnbd0:/dev/rnbd1 --size=16M
  grep -F 'that --reactors spreads its connections' <<<"$("$braid" --control srv sessions)" ||
    fail "sessions does not tell that one reactor serves Linux"
  local each served
  served=$(server_json 'd["requests_by_reactor"]')
  echo "requests of each reactor of the server: $served"
  [[ $served =~ ^\[[1-9][0-9]*,\ 0\]$ ]] || fail "Linux was served by other reactors: $served"
  for each in rnbd0 rnbd1; do
    echo normal >/sys/block/$each/rnbd/unmap_device || fail "rnbd_client does not unmap"
  done
  wait_for 20 "the end of the devices of rnbd_client" test ! -e /sys/block/rnbd1
  wait_for 20 "the end of the devices of rnbd_client" test ! -e /sys/block/rnbd0
  braid_serves
}

linux_keys() {
  echo "== a server with keys does not let Linux in"
  "$braid" key new linux -o "$work/linux.key" >/dev/null
  braid_serves --keys "$work/linux.key"
  echo "sessname=none path=$cable0 device_path=ram" >$clt/map_device &&
    fail "a server with keys let Linux in"
  (($(server_json 'd["keys_refused"]["no key shown"]') > 0)) ||
    fail "the server did not count who showed no key"
  [[ ! -e /sys/block/rnbd0 ]] || fail "rnbd_client has a device"
  braid_serves
}

linux_round() {
  linux_maps ram
  linux_unmaps
}
linux_rounds() {
  echo "== Linux maps and unmaps"
  leaves_nothing linux_round no_braid_sessions srv "$server_pid"
}

braid_serves() {  # [OPTION...]: instead of who did before
  stop_process "$server_pid"
  : >"$work/server.log"
  "$braid" serve "$work" --memory ram=32M --listen 10.10.0.2:1234 --listen 10.11.0.2:1234 \
    --device rxe_b0,rxe_b1 --node-name srv --queue-depth 64 --max-io 124K "$@" \
    >"$work/server.log" 2>&1 &
  server_pid=$!
  wait_for_line 60 "the start of the server" "$work/server.log" '^serving ' "$server_pid"
}
side_linux() {
  modprobe rnbd-client
  truncate -s 32M "$work/disk.img"
  braid_serves
  local part
  for part in "${parts[@]}"; do "linux_$part"; done
  modprobe -r rnbd-client rtrs-client
  stop_process "$server_pid"
  server_pid=
}
