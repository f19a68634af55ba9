#!/usr/bin/env bash
# Device nodes beneath an export root: a server gives away none of them unless told to, and then
# only block devices.
source "$(dirname "$0")/lib.sh"
need_root
need losetup python3
[[ -e /dev/fuse && -e /dev/loop-control ]] || skip "needs /dev/fuse and /dev/loop-control"

refuse() {
  local text=$1 name=$2
  ! ctl map "127.0.0.1:$port/$name" --name refused >"$work/out" 2>&1 || fail "\"$name\" was mapped"
  grep -qF -- "$text" "$work/out" || fail "\"$name\" was refused with $(cat "$work/out")"
}

mkdir "$work/root"
head -c 1M /dev/urandom >"$work/image"
backing=$(losetup --find --show "$work/image")
detach() { losetup --detach "$backing"; }
at_end=detach
cp -a "$backing" "$work/root/disk" || skip "no device nodes can be made here"
mknod "$work/root/null" c 1 3

start_server "$work/root"
start_daemon
refuse "exporting devices is not allowed" disk
refuse "a character device" null
stop_process "$server_pid"

start_server "$work/root" --block-devices
refuse "a character device" null
device=$(ctl map "127.0.0.1:$port/disk" --front-end fuse --json | field device)
cmp "$device" "$work/image" || fail "the disk reads as something else"
head -c 64k /dev/urandom >"$work/news"
dd if="$work/news" of="$device" bs=64k seek=3 oflag=direct conv=fsync status=none
ctl unmap disk
dd if="$work/image" bs=64k skip=3 count=1 status=none | cmp - "$work/news" ||
  fail "what was written is not on the disk"
