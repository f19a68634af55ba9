#!/usr/bin/env python3
"""Test of kernel_log.py: what a kernel's complaint is, and that none passes unseen."""

import sys
import unittest

import kernel_log

BEGINS = "[    0.000000] Linux version 6.1.0 (debian-kernel@lists.debian.org)\n"
QUIET = BEGINS + ("[    1.200000] rdma_rxe: loaded\n"
                  "[    2.500000] rnbd_client L597: Mapping device /dev/ram0\n"
                  "[    3.000000] printk: warnings are not what this is about\n"
                  "[    4.000000] debug: nothing\n"
                  "[    4.036415] PCI: Using host bridge windows from ACPI; if necessary, use "
                  "\"pci=nocrs\" and report a bug\n"
                  "[    5.083782] AMD-Vi: not available on this system - This is not a bug.\n")
WARNING = """\
[   40.1] ------------[ cut here ]------------
[   40.1] WARNING: CPU: 1 PID: 50 at drivers/infiniband/sw/rxe/rxe_comp.c:1 do_complete+0x1/0x2
[   40.1] Modules linked in: rnbd_client
[   40.1] Call Trace:
[   40.1]  <TASK>
[   40.1]  rxe_completer+0x1/0x2 [rdma_rxe]
[   40.1] ---[ end trace 0000000000000000 ]---
"""
HUNG = """\
[  242.1] INFO: task fio:77 blocked for more than 120 seconds.
[  242.1]       Not tainted 6.1.0 #1
[  242.1] "echo 0 > /proc/sys/kernel/hung_task_timeout_secs" disables this message.
[  242.1] task:fio state:D stack:0 pid:77
[  242.1] Call Trace:
[  242.1]  <TASK>
[  242.1]  io_schedule+0x1/0x2
"""
OTHERS = ("BUG: unable to handle page fault for address: 00000000",
          "Oops: 0000 [#1] PREEMPT SMP", "general protection fault, probably for address 1",
          "watchdog: BUG: soft lockup - CPU#1 stuck for 26s!", "Kernel panic - not syncing: x",
          "rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:",
          "rcu: INFO: rcu_preempt self-detected stall on CPU", "refcount_t: underflow",
          "list_del corruption. prev->next should be 1", "Call Trace:",
          "kworker/0: page allocation failure: order:4", "Out of memory: Killed process 5 (fio)")


class KernelLog(unittest.TestCase):
    def test_a_quiet_log_is_well(self):
        self.assertEqual(kernel_log.judge(QUIET, []), ([], True))

    def test_each_complaint_fails(self):
        for line in OTHERS:
            said, well = kernel_log.judge(f"{QUIET}[    9.0] {line}\n", [])
            self.assertFalse(well, line)
            self.assertIn(line, said[0])

    def test_one_complaint_is_told_once_and_whole(self):
        for text in (WARNING, HUNG):
            said, well = kernel_log.judge(QUIET + text + "[  300.0] all is quiet\n", [])
            self.assertFalse(well)
            self.assertEqual(said, [f"COMPLAINT OF THE KERNEL:\n{text.rstrip()}"])

    def test_what_is_allowed_hides_no_other(self):
        allowed = [(r"rxe_comp\.c", "a reason")]
        said, well = kernel_log.judge(QUIET + WARNING, allowed)
        self.assertTrue(well)
        self.assertIn("a reason", said[0])
        for both in (WARNING + HUNG, HUNG + WARNING):
            said, well = kernel_log.judge(QUIET + both, allowed)
            self.assertFalse(well)
            self.assertEqual(len(said), 2)

    def test_a_log_without_its_beginning_fails(self):
        for text in ("", "[    1.2] rdma_rxe: loaded\n"):
            self.assertFalse(kernel_log.judge(text, [])[1])

    def test_each_allowed_pattern_has_a_reason(self):
        for pattern, why in kernel_log.ALLOWED:
            self.assertTrue(pattern and why)
            self.assertFalse(kernel_log.judge(QUIET + "[ 1.0] BUG: x\n", [(pattern, why)])[1])


if __name__ == "__main__":
    sys.exit(unittest.main())
