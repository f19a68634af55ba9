#!/usr/bin/env python3
"""usage: stuck_tasks.py CGROUP DEVICE

Watches the tasks of a control group, and the kernel's own that work for a block device, until
standard input ends; then prints the longest time that one of them spent in state D
(uninterruptible) without running once, as JSON: seconds, task, where. What other users of the
machine wait for is no business of the test."""

import json
import os
import re
import select
import sys
import time

INTERVAL_S = 0.25


def kernel_thread_names(device):
    """What the names of kernel threads for the device have in them: loop3, flush-7:3."""
    with open(f"/sys/block/{device}/dev", encoding="ascii") as file:
        return device, f"flush-{file.read().strip()}"


def is_watched(pid, group, names):
    if pid in group:
        return True
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
        head, _, tail = file.read().rpartition(")")
    is_kernel_thread = tail.split()[1] == "2"
    return is_kernel_thread and any(
        re.search(re.escape(name) + r"(?!\d)", head.partition("(")[2]) for name in names)


def tasks_in_d(cgroup, names):
    """Yields (tid, name, switches) of each watched task in state D."""
    with open(f"{cgroup}/cgroup.procs", encoding="ascii") as file:
        group = set(file.read().split())
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if not is_watched(pid, group, names):
                continue
            for tid in os.listdir(f"/proc/{pid}/task"):
                base = f"/proc/{pid}/task/{tid}"
                with open(f"{base}/stat", encoding="utf-8", errors="replace") as file:
                    head, _, tail = file.read().rpartition(")")
                if not tail.startswith(" D"):
                    continue
                with open(f"{base}/status", encoding="utf-8", errors="replace") as file:
                    switches = [line for line in file if "ctxt_switches" in line]
                yield tid, head.partition("(")[2], tuple(switches)
        except (FileNotFoundError, ProcessLookupError):
            continue


def where(tid):
    try:
        with open(f"/proc/{tid}/stack", encoding="utf-8") as file:
            return [line.split("]")[1].strip() for line in file][:8]
    except (OSError, IndexError):
        return []


def main():
    cgroup, device = sys.argv[1:]
    names = kernel_thread_names(device)
    since = {}  # (tid, switches): when first seen
    worst = {"seconds": 0.0, "task": "", "where": []}
    samples = 0
    while not select.select([sys.stdin], [], [], INTERVAL_S)[0]:
        now = time.monotonic()
        seen = {}
        for tid, name, switches in tasks_in_d(cgroup, names):
            key = (tid, switches)
            seen[key] = since.get(key, now)
            if now - seen[key] > worst["seconds"]:
                worst = {"seconds": now - seen[key], "task": f"{name} ({tid})", "where": where(tid)}
        since = seen
        samples += 1
    print(json.dumps({**worst, "samples": samples}))


main()
