# For tests/lab/kernel_peers: disks of Braid that rnbd_client keeps mapped while they grow and
# shrink, that it may only read, and whose server copies what it writes before it looks.
: "${work:?source tests/system/lib.sh first}" "${braid:?}"

size_is() { (($(size_of "$1") == $2)); }
# linux_size MIB WHEN: rnbd0 has that size now: nothing is under way that would change it.
linux_size() {
  size_is /dev/rnbd0 $(($1 << 20)) || fail "$2: rnbd0 has $(size_of /dev/rnbd0) bytes, not $1 MiB"
}
# linux_path DO NAME: `reconnect` or `disconnect`, which last until it is done.
linux_path() { echo 1 >"$linux_paths/$2/$1" || fail "rnbd_client does not $1 path $2"; }
linux_paths_anew() {
  local path
  for path in "$linux_paths"/*; do linux_path disconnect "${path##*/}"; done
  for path in "$linux_paths"/*; do linux_path reconnect "${path##*/}"; done
}
# not_read DEVICE MIB: there is nothing; its user reads an I/O error.
not_read() {
  local said
  said=$(dd if="$1" of=/dev/null bs=4k count=1 skip="$2M" iflag=direct,skip_bytes 2>&1) &&
    fail "$1 has something at $2 MiB"
  grep 'Input/output error' <<<"$said" || fail "$said"
}

linux_sizes() {
  echo "== a disk of Braid grows while Linux has it mapped"
  linux_maps disk.img "path=$cable1"
  verify /dev/rnbd0
  "$braid" --control srv resize disk.img 48M
  linux_size 32 "RNBD has no news of sizes, or has it?"
  echo $((48 << 11)) >/sys/block/rnbd0/rnbd/resize
  linux_size 48 "what its operator told it"
  verify /dev/rnbd0 --offset=36M

  echo "== Linux learns the size by itself when all of its paths were away, not before"
  local path said refused
  "$braid" --control srv resize disk.img 64M
  for path in "$linux_paths"/*; do linux_path reconnect "${path##*/}"; done
  verify /dev/rnbd0
  linux_size 48 "after one path and then the other was made anew"
  said=$( (echo 1 >/sys/block/rnbd0/rnbd/remap_device) 2>&1) && fail "it was mapped again"
  grep 'already in progress' <<<"$said" || fail "$said"
  linux_size 48 "told to map it again"
  linux_paths_anew
  wait_for 60 "the news of 64 MiB" size_is /dev/rnbd0 $((64 << 20))
  verify /dev/rnbd0 --offset=52M

  echo "== it does not shrink under Linux, unless forced"
  said=$("$braid" --control srv resize disk.img 40M 2>&1) && fail "it shrank under Linux"
  grep 'is open by lab .*--force does it' <<<"$said" || fail "$said"
  "$braid" --control srv resize disk.img 40M --force
  linux_size 64 "when it had shrunk"
  refused=$(server_json 'd["requests_refused"]')
  not_read /dev/rnbd0 60
  (($(server_json 'd["requests_refused"]') > refused)) || fail "the server did not refuse it"
  verify /dev/rnbd0
  linux_paths_anew
  wait_for 60 "the news of 40 MiB" size_is /dev/rnbd0 $((40 << 20))
  verify /dev/rnbd0 --offset=30M
  linux_unmaps
  truncate -s 32M "$work/disk.img"
}

# Nothing of Linux's opens such a device for writing. The mapper writes to what lies below it
# without asking that: of two, as what may be written needs a lower one that is opened for writing.
write_below() {  # OUTPUT-FILE: as dd tells it
  modprobe dm-mod
  local sectors status=0
  sectors=$(blockdev --getsz /dev/rnbd0)
  dmsetup create --noudevsync --noudevrules --readonly lower -j 253 -m 0 \
    --table "0 $sectors linear /dev/rnbd0 0"
  dmsetup create --noudevsync --noudevrules upper -j 253 -m 1 --table "0 $sectors linear 253:0 0"
  dd if=/dev/zero of=/dev/dm-1 bs=4k count=1 oflag=direct >"$1" 2>&1 || status=$?
  dmsetup remove --noudevsync --noudevrules upper
  dmsetup remove --noudevsync --noudevrules lower
  return "$status"
}
linux_read_only() {
  echo "== a disk that Linux may only read"
  linux_maps disk.img
  verify /dev/rnbd0
  linux_unmaps
  linux_maps disk.img access_mode=ro
  # What the server makes of it, and not what the client says of itself.
  grep -F 'disk.img (ro)' <<<"$("$braid" --control srv sessions)" ||
    fail "the server lets Linux write: $("$braid" --control srv sessions)"
  dd if=/dev/rnbd0 of="$work/read" bs=64k count=128 iflag=direct status=none || fail "reading rnbd0"
  cmp -n $((8 << 20)) "$work/read" "$work/disk.img" || fail "rnbd0 has other data than the file"

  echo "== its kernel refuses who would write; what comes by it all the same the server refuses"
  local said before refused
  before=$(sha256sum <"$work/disk.img") refused=$(server_json 'd["requests_refused"]')
  blockdev --setrw /dev/rnbd0 || true
  said=$(dd if=/dev/zero of=/dev/rnbd0 bs=4k count=1 oflag=direct 2>&1) && fail "rnbd0 was written"
  grep 'Operation not permitted' <<<"$said" || fail "$said"
  (($(server_json 'd["requests_refused"]') == refused)) || fail "the server was asked"
  write_below "$work/wrote" && fail "the server let Linux write"
  grep 'Input/output error' "$work/wrote" || fail "$(cat "$work/wrote")"
  (($(server_json 'd["requests_refused"]') > refused)) || fail "the server was not asked"
  grep -F 'a change of a device that is open for reading' "$work/server.log" ||
    fail "the server does not tell what it refused"
  dmesg | grep 'IO request failed: error=-30' || fail "Linux was not told EROFS"
  [[ $(sha256sum <"$work/disk.img") == "$before" ]] || fail "the file was changed"
  linux_unmaps
}

linux_guard() {
  echo "== Linux maps from a Braid server that copies what was written before it looks"
  braid_serves --chunk-guard windows
  linux_maps ram
  verify /dev/rnbd0 --size=16M
  local guards
  guards=$("$braid" --control srv sessions --json | python3 -c '
import json, sys
for session in json.load(sys.stdin)["sessions"]: print(*session["chunk_guards"])')
  [[ $guards == copy ]] || fail "the chunks of the session are guarded by: $guards"
  linux_unmaps
  braid_serves
}
