#!/usr/bin/env bash
# Ctrl-C at any step of the demo leaves nothing behind. Each moment is a demo up to there: here are
# four that differ in what there is by then; BRAID_DEMO_MOMENTS=all takes all twelve.
source "$(dirname "$0")/lib.sh"
need_root
need mkfs.ext4 fsck.ext4 fio losetup python3 setsid
[[ -e /dev/fuse && -e /dev/loop-control ]] || skip "needs /dev/fuse and /dev/loop-control"

export BRAID_BIN=$BRAID_BIN_DIR BRAID_DEMO_COPY_MB=20 BRAID_DEMO_FIO_SECONDS=1 TMPDIR=$work
# What is left of the demo with this process number, as others see it.
left_of() {
  local file words
  for file in /proc/[0-9]*/cmdline; do
    mapfile -d '' -t words 2>/dev/null <"$file" || continue
    [[ "${words[*]} " == *" demo.$1"[\ -]* || "${words[*]}" == *"$work/braid-demo."* ]] &&
      echo "process ${words[*]}"
  done
  grep -lwF "demo.$1" /sys/block/*/{loop/backing_file,backend} 2>/dev/null
  grep -F "@braid" /proc/net/unix | grep -wF "demo.$1"
  grep -F "$work" /proc/self/mounts
  ls -d "/run/netns/braid-demo-$1" 2>/dev/null
  find "$work" -maxdepth 1 -name 'braid-demo.*'
  return 0
}

moments=('^\[1/11\]' 'the copy waits' '^\[6/11\]' ' while fio writes')
[[ ${BRAID_DEMO_MOMENTS:-} != all ]] ||
  moments+=('^\[2/11\]' '^\[3/11\]' '^\[4/11\]' '^\[5/11\]' '^\[7/11\]' '^\[8/11\]' '^\[9/11\]'
    '^\[10/11\]')
for moment in "${moments[@]}"; do
  : >"$work/demo.log"
  # A shell without job control starts background commands deaf to SIGINT: undo that.
  python3 -c 'import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
os.setsid()
os.execvp(sys.argv[1], sys.argv[1:])' scripts/demo >"$work/demo.log" 2>&1 &
  demo=$!
  reached() {
    running "$demo" || fail "the demo ended before \"$moment\""
    grep -q "$moment" "$work/demo.log"
  }
  wait_for 90 "\"$moment\"" reached
  # As a terminal does: to the whole foreground group.
  kill -INT -- "-$demo"
  status=0
  wait "$demo" || status=$?
  ((status == 130)) || fail "interrupted at \"$moment\", the demo ended with $status"
  grep -qF "nothing is left behind" "$work/demo.log" || fail "after \"$moment\" something is left"
  left=$(left_of "$demo")
  [[ -z $left ]] || fail "after \"$moment\" there is: $left"
done
