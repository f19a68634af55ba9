#!/usr/bin/env python3
"""What ctest's JUnit file tells.

results.py single RESULTS.xml FOLDER   replaces each suite that ran in one process by its tests, as
    the process has told in FOLDER (cmake/BraidSuites.cmake)
results.py skipped RESULTS.xml   which tests did not run here, and why
results.py sum RESULTS.xml [AGAIN.xml]   how many passed, failed and were skipped in the end
results.py again RESULTS.xml     why the failed tests may not run again; exit code 0: they may
results.py unproven RESULTS.xml AGAIN.xml   which of the failed have not passed the second time
"""

import pathlib
import re
import sys
import xml.etree.ElementTree as tree
from collections import defaultdict

# What must not fail even once: it follows from its seed alone, or it compares data.
NEVER_AGAIN = re.compile(
    r"^(sim|explore|fuzz|lint):|KernelDevice|system:(demo|memory_pressure)_test"
)
# Load may break an expectation. It never makes a program crash or a sanitizer find something.
ENDED_BY_ITSELF = re.compile(r"^\[  FAILED  \]|^FAILED: ", re.MULTILINE)
FOUND_A_BUG = re.compile(r"Sanitizer|runtime error:|assertion .*failed|panic", re.IGNORECASE)
FAILED_MAX = 3


def cases(path, element):
    for case in tree.parse(path).getroot().iter("testcase"):
        if case.find(element) is not None:
            yield case.get("name").split("  # ")[0], case.findtext("system-out") or ""


def single_cases(suite, told):
    """What a process has told of its tests, each as ctest would have; those that are disabled are
    parts of others."""
    layer = suite.get("name").partition(":")[0]
    for test in tree.parse(told).getroot().iter("testcase"):
        if test.get("result") == "suppressed":
            continue
        failures = [failure.text or "" for failure in test.iter("failure")]
        skipped = test.find("skipped")
        status = "fail" if failures else "notrun" if skipped is not None else "run"
        case = tree.Element("testcase", {
            "name": f"{layer}:{test.get('classname')}.{test.get('name')}",
            "status": status, "time": test.get("time")})
        output = tree.SubElement(case, "system-out")
        if failures:
            # Whatever else the process said may be the reason: a sanitizer's report.
            tree.SubElement(case, "failure")
            output.text = "\n".join([*failures, suite.findtext("system-out") or ""])
        elif skipped is not None:
            tree.SubElement(case, "skipped")
            # GoogleTest's file has "FILE:LINE" in its first line, and then the words.
            output.text = "skipped: " + " ".join((skipped.text or "").splitlines()[1:])
        yield case


def make_single(path, folder):
    document = tree.parse(path)
    root = document.getroot()
    told = {file.name: file for file in pathlib.Path(folder).glob("*.xml")}
    for suite in list(root.iter("testcase")):
        layer, _, name = suite.get("name").partition(":")
        name, _, part = name.partition(":")
        file = f"{layer}.{name.replace('/', '.')}.{part.partition('of')[0] or 1}.xml"
        # A process that has told nothing has crashed, or did not end: that stays a failure.
        if file not in told or suite.get("status") not in ("run", "fail"):
            continue
        cases_told = list(single_cases(suite, told[file]))
        root.extend(cases_told)
        if suite.get("status") == "run" or any(c.get("status") == "fail" for c in cases_told):
            root.remove(suite)
    document.write(path)


def reason(output):
    """The words of the test itself: GTEST_SKIP's message, or the line of a script's skip()."""
    lines = [line.strip() for line in output.splitlines()]
    for at, line in enumerate(lines):
        if line.startswith("skipped: "):
            return line.removeprefix("skipped: ")
        if re.search(r"\.(cc|h):\d+: Skipped$", line):
            return " ".join(filter(None, lines[at + 1 : at + 2])) or "no reason given"
    return "no reason given"


def print_skipped(path):
    skipped = defaultdict(list)
    for name, output in cases(path, "skipped"):
        skipped[reason(output)].append(name)
    for why, names in sorted(skipped.items(), key=lambda item: -len(item[1])):
        more = f" and {len(names) - 2} more" if len(names) > 2 else ""
        print(f"NOT TESTED HERE ({len(names)}): {why}: {', '.join(names[:2])}{more}")


def why_not_again(name, output):
    if NEVER_AGAIN.search(name):
        return "does not depend on load"
    if found := FOUND_A_BUG.search(output):
        return f'says "{found.group()}"'
    if not ENDED_BY_ITSELF.search(output):
        return "crashed, or did not end in time"
    return None


def print_final(path):
    failed = list(cases(path, "failure"))
    final = [f"{name} {why}" for name, output in failed if (why := why_not_again(name, output))]
    if not 1 <= len(failed) <= FAILED_MAX:
        final.append(f"{len(failed)} tests failed")
    print("\n".join(final))
    return 1 if final else 0


def print_unproven(path, again):
    passed = {
        case.get("name").split("  # ")[0]
        for case in tree.parse(again).getroot().iter("testcase")
        if case.get("status") == "run"
    }
    for name, _ in cases(path, "failure"):
        if name not in passed:
            print(name)


def print_sum(path, again=None):
    status = {
        case.get("name"): case.get("status")
        for file in filter(None, [path, again])
        for case in tree.parse(file).getroot().iter("testcase")
    }
    count = list(status.values()).count  # The disabled ones are parts of others: not counted.
    print(f"{count('run')} passed, {count('fail')} failed, {count('notrun')} skipped")


if sys.argv[1] == "single":
    make_single(sys.argv[2], sys.argv[3])
elif sys.argv[1] == "skipped":
    print_skipped(sys.argv[2])
elif sys.argv[1] == "unproven":
    print_unproven(*sys.argv[2:])
elif sys.argv[1] == "sum":
    print_sum(*sys.argv[2:])
else:
    sys.exit(print_final(sys.argv[2]))
