#!/usr/bin/env bash
# The daemon as a service manager runs it: configured by files, told to be ready only when the
# control socket answers, watched, ended; a disk whose server comes later; the unit.
source "$(dirname "$0")/lib.sh"
need_root
need python3 blockdev setpriv
[[ -e /dev/fuse && -e /dev/loop-control ]] || skip "needs FUSE and loop devices"

# The unit as it is installed, but for the place of the program.
unit=packaging/systemd/braidd.service.in
sed "s|^ExecStart=.*|ExecStart=$braidd|; s|@[A-Z_]*@|/usr/share/doc|g" "$unit" \
  >"$work/braidd.service"
if command -v systemd-analyze >/dev/null; then
  systemd-analyze verify --man=no "$work/braidd.service" >"$work/out" 2>&1 ||
    fail "unit: $(cat "$work/out")"
  [[ -s $work/out ]] && fail "unit: $(cat "$work/out")"
fi
# What the unit lets the daemon do: these capabilities only, and no more by way of a program.
declare -A kept
read -ra capabilities < <(sed -n 's/^CapabilityBoundingSet=//p' "$unit")
for capability in "${capabilities[@]}"; do kept[$capability]=1; done
((${#kept[@]} > 5)) || fail "no capabilities in $unit"
dropped=$(setpriv --list-caps | while read -r name; do
  [[ ${kept[CAP_${name^^}]:-} ]] || printf ',-%s' "$name"
done)
confined=(setpriv --no-new-privs "--bounding-set=${dropped#,}" "$braidd")

# manage TELLS [ARGUMENT...]: braidd, and what it tells, a line each. A line "ANSWERS yes|no" beside
# READY=1 says whether the control socket answered at that moment.
manage() {
  local tells=$1
  shift
  : >"$tells"
  python3 - "$tells" "$node" "$braid" "$work" "${confined[@]}" "$@" <<'PY' 2>"$work/daemon.log" &
import os, signal, socket, subprocess, sys
tells, node, braid, work, *command = sys.argv[1:]
at = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
name = f"\0braid-{node}"
at.bind(name)
env = dict(os.environ, NOTIFY_SOCKET="@" + name[1:], WATCHDOG_USEC="400000")
env.pop("WATCHDOG_PID", None)
daemon = subprocess.Popen(command, env=env, stdout=open(f"{work}/daemon.out", "w"))
signal.signal(signal.SIGTERM, lambda *_: daemon.send_signal(signal.SIGTERM))
out = open(tells, "w")
at.settimeout(0.1)
ended = False
while True:
    try:
        text = at.recv(4096).decode()
    except TimeoutError:
        if ended:
            break
        ended = daemon.poll() is not None  # what it told last is still to be read
        continue
    for line in text.split("\n"):
        print(line, file=out, flush=True)
        if line == "READY=1":
            asked = subprocess.run([braid, "--control", node, "list"], capture_output=True)
            print("ANSWERS", "no" if asked.returncode else "yes", file=out, flush=True)
print("ENDED", daemon.returncode, file=out, flush=True)
PY
  daemon_pid=$!
}
told() { wait_for_line 60 "\"$1\"" "$work/tells" "$1" "$daemon_pid"; }
state() { [[ $(ctl show late --json | field state) == "$1" ]]; }

mkdir "$work/root" "$work/etc" "$work/etc/braid.d"
truncate -s 8M "$work/root/disk.img"
start_server "$work/root"
cat >"$work/etc/braid.toml" <<TOML
[node]
name = "overridden"
[serve]
root = "$work/root"
listen = "127.0.0.1:0"
[[export]]
name = "ram"
memory = "8M"
[[map]]
target = "127.0.0.1:$port/disk.img"
name = "late"
TOML
printf '[node]\nname = "%s"\n' "$node" >"$work/etc/braid.d/10-name.toml"
kill_server

# What it would do, and from where.
"$braid" config check "$work/etc/braid.toml" >"$work/out" || fail "check: $(cat "$work/out")"
grep -qx "map late from 127.0.0.1:$port/disk.img, rw" "$work/out" || fail "$(cat "$work/out")"
"$braid" config show "$work/etc/braid.toml" >"$work/out"
grep -q "\[node\] name .*10-name.toml:2:8, instead of .*braid.toml:2:8" "$work/out" ||
  fail "show: $(cat "$work/out")"

# Ready, while a server is away.
manage "$work/tells" --config "$work/etc/braid.toml" --queue-depth 64
told '^READY=1'
told '^ANSWERS'
grep -qx 'ANSWERS yes' "$work/tells" || fail "it is ready before it answers"
told '^STATUS=Not mapped yet: late'
wait_for 30 "the first attempt" state waiting
names_its_place() { [[ $(ctl why late) == *"$work/etc/braid.toml:9:1"* ]]; }
wait_for 30 "the word where it is configured" names_its_place  # while it tries, it says so
ctl list | grep -E '^ram ' >/dev/null || fail "list: $(ctl list)"
told '^WATCHDOG=1'

# The server comes.
start_server "$work/root"
wait_for 30 "the mapping of a disk whose server came later" state open
device=$(ctl show late --json | field device)
[[ $(blockdev --getsize64 "$device") == $((8 << 20)) ]] || fail "size of $device"
dd if=/dev/urandom of="$work/data" bs=4k count=16 status=none
dd if="$work/data" of="$device" bs=4k oflag=direct status=none
dd if="$work/root/disk.img" bs=4k count=16 status=none | cmp - "$work/data" || fail "data"
told '^STATUS=All that it is to map is mapped'
grep -q 'WATCHDOG=1' <<<"$(tail -n +1 "$work/tells" | sed '1,/All that/d')" || told 'WATCHDOG=1'

# In use when it is to end: it ends by itself as soon as the user has gone.
exec {user}<"$device"
kill -TERM "$daemon_pid"
told '^STOPPING=1'
told '^STATUS=.*late.*in use'
exec {user}<&-
told '^ENDED 0'
wait "$daemon_pid" 2>/dev/null || true
daemon_pid=
[[ -e $device ]] && [[ $(blockdev --getsize64 "$device" 2>/dev/null || echo 0) != 0 ]] &&
  fail "$device is left behind"

# A configuration that makes no sense: all of it is told, and braidd ends with 2.
printf '[node]\nnmae = "x"\n[serve]\nroot = 5\n' >"$work/wrong.toml"
status=0
"$braid" config check "$work/wrong.toml" 2>"$work/out" || status=$?
((status == 1)) || fail "check ended with $status"
for words in "wrong.toml:2:1: [node] has no key \"nmae\"; did you mean \"name\"?" \
  "wrong.toml:4:8: [serve] root = 5: want an absolute path"; do
  grep -qF "$work/$words" "$work/out" || fail "check: $(cat "$work/out")"
done
for file in wrong.toml none.toml; do
  status=0
  "$braidd" --node-name "$node" --config "$work/$file" 2>"$work/out" || status=$?
  ((status == 2)) || fail "braidd with $file ended with $status"
done
grep -qF "none.toml: it cannot be read" "$work/out" || fail "braidd: $(cat "$work/out")"

# What braidd would only find out when it makes its exports, takes its name or maps is told, too,
# and by both in the same words.
cat >"$work/unfit.toml" <<TOML
[node]
name = "$(printf '%094d' 0)"
[[export]]
name = "ram"
memory = "1M"
[[export]]
name = "/ram"
memory = "65T"
[[map]]
target = "127.0.0.1:$port/disk.img"
access = "migration"
filters = "checksum"
TOML
status=0
"$braid" config check "$work/unfit.toml" 2>"$work/out" || status=$?
((status == 1)) || fail "check ended with $status"
sed 's/^/braidd: /' "$work/out" >"$work/expected"
for words in 'unfit.toml:2:8: [node] name: ' 'unfit.toml:7:8: [[export]] "/ram", which is "ram",' \
  'unfit.toml:8:10: [[export]] memory = "65T": ' 'unfit.toml:12:11: [[map]] filters: '; do
  grep -qF "$work/$words" "$work/out" || fail "check: $(cat "$work/out")"
done
status=0
"$braidd" --config "$work/unfit.toml" 2>"$work/out" || status=$?
((status == 2)) || fail "braidd ended with $status"
grep -v 'configured by' "$work/out" | diff "$work/expected" - >"$work/differ" ||
  fail "braidd and config check differ: $(cat "$work/differ")"
