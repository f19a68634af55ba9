#!/usr/bin/env python3
"""For scripts/demo: judges what fio tells of the load under which a cable was pulled.

usage: judge_load.py FIO-JSON MOST-MS

fio has requests under way always, so its longest request is the longest pause. Fails if there was
an error, also of its verification, if nothing was written or nothing verified, or if a request took
more than MOST-MS.
"""

import json
import sys


def judge(text, most_ms):
    """(what to say, what is wrong or None)"""
    job, = json.loads(text[text.index("{"):])["jobs"]  # behind a line about a signal
    errors = job["error"] or job.get("total_err", 0)
    if errors:
        return "", f"fio tells of an error: {errors}"
    written, verified = (job[way]["total_ios"] for way in ("write", "read"))
    if not written or not verified:
        return "", f"fio has written {written} and verified {verified}: it shows nothing"
    longest_ms = max(job[way]["lat_ns"]["max"] for way in ("write", "read")) / 1e6
    told = (f"fio: {written} writes, {verified} read back and verified, no error; "
            f"the longest pause was {longest_ms:.0f} ms of at most {most_ms}")
    return told, None if longest_ms <= most_ms else "the longest pause was too long"


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        told, wrong = judge(file.read(), int(sys.argv[2]))
    if told:
        print(told)
    if wrong:
        print(wrong)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
