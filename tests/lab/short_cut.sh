# For tests/lab/kernel_peers: the only cable of rnbd_client is away for 2 s under fio, once with
# Braid's server, once with Linux's. Whether its I/O goes on then is up to its kernel, and is told,
# not judged (docs/kernel-peers.md). Judged is what must hold in any case: no error is hidden, no
# data is wrong, the server serves others, and who is stuck gets out.
: "${work:?source tests/system/lib.sh first}" "${braid:?}"
# Longer than a path lives without heartbeats: what is there then stays.
short_cut_looks_s=40
short_cut_log=$work/short_cut_fio.log
short_cut_told=()

# Whatever has happened, nothing of it is left: no cut cable, no client that is stuck, no fio. (An
# unmap by force that waits for requests cannot be killed: nobody waits for it without end.)
short_cut_ends() {
  local path
  mend_cable 0 2>/dev/null
  kill "$short_cut_fio" 2>/dev/null  # and so the processes of its writers
  [[ -e /sys/block/rnbd0 ]] || return 0
  for path in "$linux_paths"/*; do echo 1 >"$path/reconnect" & done
  echo force >/sys/block/rnbd0/rnbd/unmap_device &
  within 30 test ! -e /sys/block/rnbd0 || echo "rnbd0 is still there"
}

# A writer for each CPU, so that each connection has requests when the cable is cut.
short_cut_fio_starts() {
  (cd "$work" && exec fio --name=cut --filename=/dev/rnbd0 --direct=1 --ioengine=libaio \
    --iodepth=8 --rw=randrw "${one_size[@]}" --size=2M --numjobs=4 --offset_increment=2M \
    --cpus_allowed="0-$(($(nproc) - 1))" --cpus_allowed_policy=split --verify=crc32c --fsync=16 \
    --verify_backlog=64 --verify_fatal=1 --randrepeat=0 --runtime=15 --group_reporting \
    --output-format=json) >"$short_cut_log" 2>&1 &
  short_cut_fio=$!
}
# requests_of BLOCK-DEVICE: that are under way.
requests_of() {
  local reads writes
  read -r reads writes <"/sys/block/$1/inflight"
  echo $((reads + writes))
}
short_cut_fio_ended() { ! running "$short_cut_fio"; }
short_cut_all_ended() { short_cut_fio_ended && [[ ! -e /sys/block/rnbd0 ]]; }
# within SECONDS COMMAND...: whether it succeeds in that time.
within() {
  local limit=$((SECONDS + $1))
  until "${@:2}"; do
    ((SECONDS < limit)) || return 1
    read -rt 0.05 <>"$never" || true  # lint: allow(sleep) the time between two looks, no more
  done
}

# Another client, by the other cable, reads and writes another disk of the same server.
short_cut_others() {  # DISK
  map_foreground other rxe_a1 "10.11.0.2$1"
  fio_limit=60 verify "$device"
  unmap_foreground
  echo "meanwhile another client of that server wrote, read and verified"
}

# What fio was told must be what happened. A path that was lost is an I/O error for all that was on
# it; without one, nothing has failed.
short_cut_judges_fio() {  # STUCK-REQUESTS RECONNECTS-BEFORE
  local status=0
  wait "$short_cut_fio" || status=$?
  ! grep 'verify:' "$short_cut_log" || fail "fio found other data than it wrote"
  if ((status == 0)); then
    (($1 == 0)) || fail "$1 requests were ended by force, and fio was told of no error"
    judge_fio "$short_cut_log" >"$work/short_cut_ms" || fail "fio did not do what it was for"
  else
    grep -m 1 -E 'error=(Input/output error|No such device|Transport endpoint)' "$short_cut_log" ||
      fail "fio failed by something else than an I/O error"
    (($1 > 0)) || (($(linux_reconnects) > $2)) || linux_lost ||
      fail "fio saw an error, though nothing was stuck and no path was lost"
  fi
  return "$status"
}

# How who is stuck gets out, in $way. An unmap by force waits for what is under way, as it was seen
# to: then a path that is made anew has to end both.
short_cut_by_force() {
  local began=$SECONDS
  echo force >/sys/block/rnbd0/rnbd/unmap_device &
  if within 5 short_cut_all_ended; then
    way="unmap by force ends it after $((SECONDS - began)) s"
    return
  fi
  short_cut_by_path_anew short_cut_all_ended
  way="unmap by force alone does not end it in 5 s, then $way"
}
short_cut_by_path_anew() {  # COMMAND: whether it is over
  local began=$SECONDS path
  for path in "$linux_paths"/*; do echo 1 >"$path/reconnect" & done
  within 60 "$1" || fail "a path made anew does not get the client out"
  way="a path made anew ends it after $((SECONDS - began)) s"
  wait_for 60 "rnbd_client to find its server again" short_cut_back
}
# Connected, or with its device gone as a whole.
short_cut_back() { [[ ! -e $linux_paths ]] || linux_connected; }

# short_cut_with WHOSE DISK OTHER-DISK NO-SESSIONS GETS-OUT...: the server runs, and nobody is its
# client.
short_cut_with() {
  echo "== Linux's client, its only cable away for 2 s, with $1"
  local began lasted back after stuck=0 status=0 reconnects way
  linux_maps "$2"
  linux_keeps --do_verify=0
  reconnects=$(linux_reconnects)
  short_cut_fio_starts
  wait_for 60 "I/O before the cable is cut" has_requests /dev/rnbd0
  began=$(date +%s%3N)
  cut_cable 0
  sleep 2  # lint: allow(sleep) for so long the cable is away
  mend_cable 0
  back=$SECONDS lasted=$(($(date +%s%3N) - began))
  short_cut_others "$3"
  if within $((short_cut_looks_s - (SECONDS - back))) short_cut_fio_ended; then
    short_cut_judges_fio 0 "$reconnects" || status=$?
    if ((status == 0)); then
      after=$(($(cat "$work/short_cut_ms") - lasted))
      ((after > 0)) || after=0
      way="went on after $((after / 1000)).$((after % 1000 / 100)) s, without an error"
    else
      way="gave its path up within $((SECONDS - back)) s: its user got an I/O error"
      wait_for 180 "rnbd_client to find its server again" linux_connected
    fi
  else
    stuck=$(requests_of rnbd0)
    ((stuck > 0)) || fail "fio has no end, though no request is under way"
    echo "stuck; the path is $(linux_session), its reconnects: $(linux_reconnects)"
    rdma resource show qp | grep -E 'rxe_[ab]0/1.* type RC'
    "${@:5}"
    short_cut_judges_fio "$stuck" "$reconnects" || status=$?
    way="stuck: $stuck requests after $short_cut_looks_s s, $way"
    if [[ ! -e /sys/block/rnbd0 ]]; then
      wait_for 60 "the end of the stuck session at the server" "$4"
      linux_maps "$2"
    fi
  fi
  linux_keeps --verify_only
  verify /dev/rnbd0
  linux_unmaps
  wait_for 60 "the end of the sessions at the server" "$4"
  short_cut_told+=("with $1: $way")
}

linux_short_cut() {
  local disk other began=$SECONDS
  at_end=short_cut_ends short_cut_fio=
  truncate -s 32M "$work/other.img"
  short_cut_with "Braid's server" ram /disk.img no_braid_sessions short_cut_by_force

  stop_process "$server_pid"
  server_pid=
  disk=$(losetup --show --find "$work/disk.img") other=$(losetup --show --find "$work/other.img")
  linux_serves Y
  short_cut_with "Linux's rnbd_server" "$disk" "$other" no_rtrs_sessions \
    short_cut_by_path_anew short_cut_fio_ended
  modprobe -r rnbd-server rtrs-server
  losetup -d "$disk" "$other"
  braid_serves
  at_end=:
  echo "== Linux's client, its only cable away for 2 s; kernel $(uname -r); $((SECONDS - began)) s:"
  printf '   %s\n' "${short_cut_told[@]}"
}
