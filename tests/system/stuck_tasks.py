#!/usr/bin/env python3
"""Watches all tasks of the machine until standard input ends; then prints the longest time that a
task spent in state D (uninterruptible) without running once, as JSON: seconds, task, where."""

import json
import os
import select
import sys
import time

INTERVAL_S = 0.25


def tasks_in_d():
    """Yields (tid, name, switches) of each task in state D."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
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
    since = {}  # (tid, switches): when first seen
    worst = {"seconds": 0.0, "task": "", "where": []}
    samples = 0
    while not select.select([sys.stdin], [], [], INTERVAL_S)[0]:
        now = time.monotonic()
        seen = {}
        for tid, name, switches in tasks_in_d():
            key = (tid, switches)
            seen[key] = since.get(key, now)
            if now - seen[key] > worst["seconds"]:
                worst = {"seconds": now - seen[key], "task": f"{name} ({tid})", "where": where(tid)}
        since = seen
        samples += 1
    print(json.dumps({**worst, "samples": samples}))


main()
