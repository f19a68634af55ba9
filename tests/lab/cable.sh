# For lab scripts: a cable of rdma-up that loses everything, and no more. Both ends keep their link
# and hear nothing, as when a switch between them dies. (With `rdma-up down` rxe 6.1 loses the
# receive side of its QP 1 as soon as a CM message is sent while the link is down, and connects no
# more: docs/rdma-devices.md.)
modprobe sch_netem

# Two cables; another script may have made them in this machine.
two_cables() { [[ -e /sys/class/net/a1 ]] || rdma-up -n 2 >/dev/null; }

cut_cable() {
  local end
  for end in "a$1" "b$1"; do tc qdisc add dev "$end" root netem loss 100%; done
}
mend_cable() {
  local end
  for end in "a$1" "b$1"; do tc qdisc del dev "$end" root; done
}

# path_field NODE DEVICE PATH FIELD: of path number PATH of the session that the device is from.
path_field() {
  "$braid" --control "$1" show "$2" --json | python3 -c '
import json, sys
print(json.load(sys.stdin)["session"]["paths"][int(sys.argv[1])][sys.argv[2]])' "$3" "$4"
}
path_up() { [[ $(path_field "$1" "$2" "$3" connected) == True ]]; }
path_down() { ! path_up "$@"; }
# carries_more NODE DEVICE PATH COUNT: the path has carried more than COUNT reads.
carries_more() { (($(path_field "$1" "$2" "$3" reads) > $4)); }

# cut_each_in_turn NODE DEVICE [TRIES]: of a device with two paths, while something uses it. Its I/O
# goes on by the path that is left, and the other comes back. Again, up to TRIES times (3), should
# no request have been on either path just when it was cut.
cut_each_in_turn() {
  local cut other carried moved=0 tries=${3:-3}
  for cut in 0 1; do
    other=$((1 - cut))
    carried=$(path_field "$1" "$2" "$cut" reads)
    wait_for 60 "I/O by path $cut" carries_more "$1" "$2" "$cut" "$carried"
    cut_cable "$cut"
    wait_for 30 "the loss of path $cut" path_down "$1" "$2" "$cut"
    carried=$(path_field "$1" "$2" "$other" reads)
    wait_for 60 "I/O by path $other alone" carries_more "$1" "$2" "$other" "$carried"
    path_up "$1" "$2" "$other" || fail "path $other was lost too, though its cable is whole"
    path_down "$1" "$2" "$cut" || fail "path $cut is up, though its cable is cut"
    mend_cable "$cut"
    wait_for 120 "the return of path $cut" path_up "$1" "$2" "$cut"
    carried=$(path_field "$1" "$2" "$cut" reads)
    wait_for 60 "I/O by path $cut again" carries_more "$1" "$2" "$cut" "$carried"
    carried=$(path_field "$1" "$2" "$cut" failed_over)
    echo "path $cut: lost and back; $carried requests failed over"
    moved=$((moved + carried))
  done
  ((moved > 0)) && return
  ((tries > 1)) || fail "no request was on a path that was cut: the test does not test"
  cut_each_in_turn "$1" "$2" $((tries - 1))
}
