#!/usr/bin/env python3
"""skipped_tests.py RESULTS.xml: which tests did not run here and why, from ctest's JUnit file."""

import re
import sys
import xml.etree.ElementTree as tree
from collections import defaultdict


def reason(case):
    """The words of the test itself: GTEST_SKIP's message, or the line of a script's skip()."""
    lines = [line.strip() for line in (case.findtext("system-out") or "").splitlines()]
    for at, line in enumerate(lines):
        if line.startswith("skipped: "):
            return line.removeprefix("skipped: ")
        if re.search(r"\.(cc|h):\d+: Skipped$", line):
            return " ".join(filter(None, lines[at + 1:at + 2])) or "no reason given"
    return "no reason given"


def main():
    skipped = defaultdict(list)
    for case in tree.parse(sys.argv[1]).getroot().iter("testcase"):
        if case.find("skipped") is not None:
            skipped[reason(case)].append(case.get("name").split("  # ")[0])
    for why, names in sorted(skipped.items(), key=lambda item: -len(item[1])):
        more = f" and {len(names) - 2} more" if len(names) > 2 else ""
        print(f"NOT TESTED HERE ({len(names)}): {why}: {', '.join(names[:2])}{more}")


main()
