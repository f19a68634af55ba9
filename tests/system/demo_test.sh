#!/usr/bin/env bash
# The demo, shortened, runs to its end and says that nothing is left behind.
source "$(dirname "$0")/lib.sh"
need_root
need mkfs.ext4 fsck.ext4 fio losetup python3
[[ -e /dev/fuse && -e /dev/loop-control ]] || skip "needs /dev/fuse and /dev/loop-control"

export BRAID_BIN=$BRAID_BIN_DIR BRAID_DEMO_COPY_MB=40 BRAID_DEMO_FIO_SECONDS=1 TMPDIR=$work
scripts/demo >"$work/demo.log" 2>&1 || fail "the demo ended with $?"
for text in "kill -9 of the server" "no I/O error" "checksums are equal" "nothing is left behind" \
  "read back and verified, no error; the longest pause was" "of 2 paths" "all 11 steps done"; do
  grep -qF "$text" "$work/demo.log" || fail "the demo did not say \"$text\""
done

# Where cables can be had, one was pulled: a path that its operator disconnects shows less.
if ip netns add "probe.$$" 2>/dev/null; then
  cables=0
  ip link add "probe$$" type veth peer name eth0 netns "probe.$$" 2>/dev/null && cables=1
  ip netns del "probe.$$"
  if ((cables)) && ! grep -qF "cable 1 is pulled" "$work/demo.log"; then
    fail "the demo pulled no cable, and it could"
  fi
fi

# What goes wrong is told, with the logs. fails_with TEXT: the demo fails, and says it.
fails_with() {
  local status=0
  scripts/demo >"$work/demo.log" 2>&1 || status=$?
  ((status == 1)) || fail "a demo that cannot work ended with $status"
  for text in "FAILED: " "$1" "--- server.log" "nothing is left behind"; do
    grep -qF -e "$text" "$work/demo.log" || fail "the demo that failed did not say \"$text\""
  done
}
BRAID_DEMO_FRONT_END=none fails_with "none"
mkdir "$work/bin"
printf '#!/bin/sh\nexit 5\n' >"$work/bin/mkfs.ext4"
chmod +x "$work/bin/mkfs.ext4"
PATH=$work/bin:$PATH fails_with "\"mkfs.ext4 "

# What fio tells of the load is judged. judged MOST-MS ERROR WRITTEN READ: with a longest write of
# 1500 ms.
judged() {
  cat >"$work/fio.json" <<JSON
fio: terminating on signal 2
{"jobs": [{"error": $2, "total_err": 0, "write": {"total_ios": $3, "lat_ns": {"max": 1500000000}},
  "read": {"total_ios": $4, "lat_ns": {"max": 1000}}}]}
JSON
  scripts/judge_load.py "$work/fio.json" "$1" >"$work/out"
}
judged 1500 0 9 9 || fail "a good load was judged: $(cat "$work/out")"
grep -qF "1500 ms of at most 1500" "$work/out" || fail "the pause is not told: $(cat "$work/out")"
! judged 1499 0 9 9 || fail "a pause that is too long was taken"
grep -qF "too long" "$work/out" || fail "it is not told what is wrong: $(cat "$work/out")"
! judged 1500 84 9 9 || fail "an error of fio was taken"
! judged 1500 0 0 9 || fail "a load that wrote nothing was taken"
! judged 1500 0 9 0 || fail "a load that verified nothing was taken"
