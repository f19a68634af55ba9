#!/usr/bin/env bash
# The README's way from nothing to a disk, its lines as they are: but for the build, a shorter fio,
# and a wait for what is ready in place of a guess. Ports and names are the default ones, so it has
# a network, mounts and a home of its own.
source "$(dirname "$0")/lib.sh"
need_root
need mkfs.ext4 fio unshare ip taskset
{ taskset -c 0 true && taskset -c 1 true; } 2>/dev/null || skip "processors 0 and 1 are not there"
[[ -e /dev/fuse && -e /dev/loop-control ]] || skip "needs /dev/fuse and /dev/loop-control"
unshare --net --mount true 2>/dev/null || skip "no namespaces can be made here"

sed -n '/^## From nothing to a disk/,/^## How fast/s/^    //p' README.md >"$work/lines"
for line in './run build' 'build/bin/braid map ' 'mkfs.ext4 ' 'fio --name=' 'umount /mnt' \
  'build/bin/braid nbd ' 'nbdinfo '; do
  grep -qF -- "$line" "$work/lines" || fail "the README has no line \"$line\" any more"
done
lib=${BRAID_BIN_DIR%/bin}/lib
jobs_of_fio=4
if [[ ! -e $lib/braid-fio.so ]]; then
  echo "fio's engine is not built (./run setup): its lines are left out"
  sed -i -e '/^fio --name=engine.*\\$/,/[^\\]$/d' -e '/^fio --name=engine/d' "$work/lines"
  jobs_of_fio=1
fi
nbd_exports=1
if ! command -v nbdinfo >/dev/null; then
  echo "nbdinfo is not installed (./run setup): its line is left out"
  sed -i '/^nbdinfo /d' "$work/lines"
  nbd_exports=0
fi
# fio is built without this build's sanitizers.
preload=$(sed -n 's/^BRAID_SANITIZER_RUNTIMES:[A-Z]*=//p' \
  "${BRAID_BIN_DIR%/bin}/CMakeCache.txt" 2>/dev/null || true)
mkdir "$work/srv" "$work/mnt" "$work/home"
{
  cat <<'LINES'
set -euo pipefail
ip link set lo up
mount --bind "$work/srv" /srv
mount --bind "$work/mnt" /mnt
export HOME=$work/home
servers=0
ready() {
  ((++servers))
  until (($(grep -cE '^(serving |ready for NBD clients)' "$work/script.log") == servers)) &&
    { ((servers > 1)) || "$braid" --control daemon list; }; do
    read -rt 0.05 <>"$never" || true  # lint: allow(sleep) the time between two looks, no more
  done
} >/dev/null 2>&1
# What serves and maps ends with the lines.
at_end() {
  umount -l /mnt /mnt 2>/dev/null || true  # the file system, and what is below it
  jobs -p | xargs -r kill 2>/dev/null || true  # some have ended
  wait
}
trap at_end EXIT
LINES
  # shellcheck disable=SC2016  # for the script
  sed -E -e '/^\.\/run build/d' -e "s|build/bin/|$BRAID_BIN_DIR/|g" -e "s|build/lib/|$lib/|" \
    -e "s|^fio --name=engine|LD_PRELOAD=$preload ASAN_OPTIONS=detect_leaks=0 &|" \
    -e 's/^sleep 1 .*/ready/' -e 's/--size=256M/--size=16M/' -e 's/--runtime=10 /--runtime=1 /' \
    -e '/^mkfs/a grep -q "^$disk /mnt " /proc/self/mounts' \
    -e '/^umount/a left=$("$braid" --control daemon list); [[ $left != *disk.img* ]]' "$work/lines"
} >"$work/script"
export braid work never BRAID_BIN_DIR
apart=(unshare --net --mount --propagation private --pid --fork --kill-child --mount-proc)
timeout -k 10 120 "${apart[@]}" bash "$work/script" >"$work/script.log" 2>&1 ||
  fail "the README's lines end with $?"
[[ $(grep -c "err= 0" "$work/script.log") == "$jobs_of_fio" ]] ||
  fail "fio did not say $jobs_of_fio times that all is well"
[[ $(grep -c "export-size: 1073741824" "$work/script.log") == "$nbd_exports" ]] ||
  fail "nbdinfo did not tell $nbd_exports times of 1 GiB"
