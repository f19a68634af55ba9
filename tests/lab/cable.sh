# For lab scripts: a cable of rdma-up that loses everything, and no more. Both ends keep their link
# and hear nothing, as when a switch between them dies. (With `rdma-up down` rxe 6.1 loses the
# receive side of its QP 1 as soon as a CM message is sent while the link is down, and connects no
# more: docs/rdma-devices.md.)
modprobe sch_netem

cut_cable() {
  local end
  for end in "a$1" "b$1"; do tc qdisc add dev "$end" root netem loss 100%; done
}
mend_cable() {
  local end
  for end in "a$1" "b$1"; do tc qdisc del dev "$end" root; done
}
