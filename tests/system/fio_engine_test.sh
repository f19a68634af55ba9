#!/usr/bin/env bash
# fio's engine against a server: data that is verified, at depth and one at a time, by processes and
# by threads, with flushes, FUA and trims; a server that is killed and comes back, or does not while
# fio is told to end; and words for what is wrong.
source "$(dirname "$0")/lib.sh"
need fio cmake ldd pkill
build=${BRAID_BUILD_DIR:-${BRAID_BIN_DIR%/bin}}
engine=${BRAID_BIN_DIR%/bin}/lib/braid-fio.so
[[ -e $engine ]] || skip "the engine was not built: fio's source is not there (./run setup)"
of_build() { sed -n "s/^$1:[A-Z]*=//p" "$build/CMakeCache.txt" 2>/dev/null || true; }
[[ $(of_build BRAID_SANITIZE) != *thread* ]] ||
  skip "fio itself is not built with the thread sanitizer"
preload=$(of_build BRAID_SANITIZER_RUNTIMES)
# fio is built without it, and does not free what it has at its end.
[[ ! $preload ]] || export ASAN_OPTIONS=detect_leaks=0
job() {
  cd "$work"  # fio leaves notes where it is
  # shellcheck disable=SC2086 # `exec` or nothing
  LD_PRELOAD=${preload:-} ${exec:-} fio --name=job --ioengine="external:$engine" \
    --output="$work/fio.log" \
    ${target:+--target="$target"} --size=4M --bs=4k --randrepeat=0 --verify_fatal=1 "$@"
}
works() { job "$@" >"$work/out.log" 2>&1 || fail "fio $*"; }
refused() {
  local words=$1
  shift
  if job "$@" >"$work/out.log" 2>&1; then fail "fio did not refuse: $*"; fi
  cat "$work/fio.log" >>"$work/out.log"
  grep -qF -- "$words" "$work/out.log" || fail "fio $*: said nothing of \"$words\""
}

mkdir "$work/root"
truncate -s 8M "$work/root/disk.img" "$work/root/other.img"
start_server "$work/root" --memory ram=8M
target=127.0.0.1:$port/ram
for depth in 1 32; do
  works --rw=randwrite --verify=crc32c --iodepth=$depth
  works --rw=randrw --verify=crc32c --iodepth=$depth --fsync=16 --bsrange=512-64k
  works --rw=write --verify=crc32c --iodepth=$depth --sync=dsync
done
works --rw=write --bs=2M --verify=crc32c --iodepth=4
# A trim and what is written between trims.
works --rw=randtrim --iodepth=8
works --rw=trimwrite --iodepth=1
# Readers by processes and by threads, each with a session of its own.
works --rw=randread --iodepth=8 --numjobs=3
works --rw=randread --iodepth=8 --numjobs=3 --thread=1
works --rw=randwrite --iodepth=8 --thread=1 --verify=crc32c
# Two writers, each with a disk of its own.
target=127.0.0.1:$port/disk.img
works --rw=randwrite --verify=crc32c --iodepth=4 --name=second --ioengine="external:$engine" \
  --target="127.0.0.1:$port/other.img" --rw=randwrite --size=4M --bs=4k --verify=crc32c --iodepth=4
target=file:$work/root/disk.img works --rw=read
for kind in memory:8M null:8M; do target=$kind works --rw=randwrite --iodepth=8; done
# As it is installed, with the library beside it. (The lab has programs alone.)
if [[ -e $build/cmake_install.cmake ]]; then
  built=$engine
  cmake --install "$build" --prefix "$work/prefix" >"$work/install.log" || fail "not installed"
  engine=$(find "$work/prefix" -name braid-fio.so)
  [[ $(ldd "$engine") == *"$work/prefix/"*libbraid.so* ]] ||
    fail "the installed engine finds another library: $(ldd "$engine")"
  works --rw=randwrite --verify=crc32c --iodepth=8
  engine=$built
fi

target='' refused "want target=HOST"
target=127.0.0.1:$port/gone refused gone --rw=read
refused "want rw, ro or migration" --rw=read --access=any
refused "leave it out" --rw=read --mem=mmap
refused nothere --rw=read --device=nothere

# --- the server is killed under fio, and comes back
stop_process "$server_pid"
start_server "$work/root"  # one that has not written anything yet
target=127.0.0.1:$port/disk.img
job --rw=randwrite --verify=crc32c --iodepth=8 --rate_iops=400 --size=4M >"$work/out.log" 2>&1 &
fio_pid=$!
# To the disk: setting up a connection writes, too.
written() {
  grep -qE ', [1-9][0-9]* writes"' <<<"$("$braid" list --json --control "serve.$server_pid")"
}
wait_for 60 "fio's first write" written
kill_server
start_server "$work/root"
wait "$fio_pid" || fail "fio did not survive the server's restart"

# --- the server is killed under fio, and stays away: fio ends when it is told to, and when its time
# is over, though its requests would wait for ever
fio_pid=
# Where it does not, its job is a process that it leaves behind.
end_fio() {
  if running "$fio_pid"; then pkill -KILL -P "$fio_pid"; fi
  if running "$fio_pid"; then kill -KILL "$fio_pid"; fi
}
at_end=end_fio
ends_without_server() {
  local told=$1
  shift
  start_server "$work/root"
  exec='exec' job --rw=randwrite --time_based --iodepth=8 "$@" >"$work/out.log" 2>&1 &
  fio_pid=$!
  wait_for 60 "fio's first write" written
  kill_server
  [[ ! $told ]] || kill "-$told" "$fio_pid"
  wait_for_end 30 "the end of fio $*" "$fio_pid"
  if wait "$fio_pid"; then fail "fio $*: it does not tell that its requests failed"; fi
  cat "$work/fio.log" >>"$work/out.log"
  grep -qF "did not want to wait" "$work/out.log" || fail "fio $*: it does not say why they failed"
  grep -q "write: IOPS=" "$work/out.log" || fail "fio $*: it ended without its results"
}
kill_server
ends_without_server INT --runtime=1000
ends_without_server INT --runtime=1000 --thread=1
ends_without_server TERM --runtime=1000 --iodepth=1
ends_without_server INT --runtime=1000 --rate_iops=400
ends_without_server "" --runtime=2
